//! # What it is
//! One CPU's fair queue: the entities that want to run there, the one that does, and who comes next.
//!
//! # How it works
//! [`Members`] holds who is there; a [`Discipline`] decides (EEVDF or CFS, chosen when the queue is made);
//! this file does what has to be done with any policy, in the one order that keeps all of it consistent.
//! Every method that changes who is queued first charges the running entity up to `now`.
//!
//! # Invariants
//! 1. Who is in the timeline is in the policy's sums, with the key it has.
//! 2. A pick from a queue that has somebody runnable is somebody runnable.
//! 3. Time is charged once: `sum_exec` of all entities grows by what passed while one of them ran.
//! 4. A delayed entity that is picked is off the queue before its owner is told, and untouched after it.
//!
//! # Cost
//! O(log n) for all but `tick`, which is O(1), and the pick: O((1 + k) log n), where k is the number of delayed entities whose
//! turn it is, so O(log n) on average, since each was delayed once. No allocation. The caller holds the queue's lock.
//! The policy is a branch that always goes the same way.

use crate::{
    entity::EntityRef,
    features::{Feature, FeatureSet},
    load::Tracking,
    members::Members,
    params::{Algorithm, TaskParams, Tunables},
    pelt::{PeltTime, Presence, Removed, Signals},
    platform::Nanos,
    policy::{Arrival, Departure, Discipline, Protection, Verdict, cfs::Cfs, eevdf::Eevdf},
    sync::Family,
    vtime::VTime,
    weight::Weight,
};

/// The most virtual time is charged for at once, in nanoseconds: almost five hours.
/// A clock that jumps further, again and again, must not overflow S, which tasks of the smallest weight stretch most.
const LONGEST_CHARGE: Nanos = 1 << 44;

pub(crate) struct FairQueue<F: Family, X: FeatureSet> {
    members: Members<F, X>,
    policy: AnyPolicy<F>,
    load: Tracking,
}

/// The policy of a queue.
enum AnyPolicy<F: Family> {
    Eevdf(Eevdf),
    Cfs(Cfs<F>),
}

/// Asks the queue's policy.
macro_rules! ask {
    ($queue:expr, $question:ident($($argument:expr),*)) => {
        match &mut $queue.policy {
            AnyPolicy::Eevdf(policy) => <Eevdf as Discipline<F, X>>::$question(policy, $($argument),*),
            AnyPolicy::Cfs(policy) => <Cfs<F> as Discipline<F, X>>::$question(policy, $($argument),*),
        }
    };
    ($queue:expr, $question:ident in members($($argument:expr),*)) => {
        match &mut $queue.policy {
            AnyPolicy::Eevdf(policy) => policy.$question(&mut $queue.members, $($argument),*),
            AnyPolicy::Cfs(policy) => policy.$question(&mut $queue.members, $($argument),*),
        }
    };
}

/// What became of an entity that fell asleep, died or moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an entity that waits on is still the queue's"]
pub(crate) enum Left {
    /// It is off the queue.
    Gone,
    /// It sleeps, and waits on.
    Delayed,
}

impl<F: Family, X: FeatureSet> FairQueue<F, X> {
    /// An empty queue. `tick` is in nanoseconds.
    pub(crate) fn new(tunables: &Tunables, tick: u32) -> Self {
        Self {
            members: Members::new(tunables.base_slice.nanos()),
            policy: match tunables.algorithm {
                Algorithm::Eevdf => AnyPolicy::Eevdf(Eevdf::new(tick)),
                Algorithm::Cfs => AnyPolicy::Cfs(Cfs::new(tunables.cfs)),
            },
            load: Tracking::new(),
        }
    }

    /// Entities that wait or run and are awake.
    #[inline(always)]
    pub(crate) fn nr_runnable(&self) -> u32 {
        self.members.nr_runnable()
    }

    /// Whether all entities, delayed ones too, are of [`Policy::Idle`](crate::Policy::Idle), whose weight is the smallest there is.
    #[inline(always)]
    pub(crate) fn only_idle_policy(&self) -> bool {
        self.members.weight == u64::from(self.members.nr) * u64::from(Weight::IDLE.get())
    }

    pub(crate) fn pick_failures(&self) -> u64 {
        match &self.policy {
            AnyPolicy::Eevdf(eevdf) => eevdf.pick_failures,
            AnyPolicy::Cfs(_) => 0,
        }
    }

    /// How often an entity was found far from all others. CFS only, and only where features can be changed.
    pub(crate) fn nr_spread_over(&self) -> u64 {
        match &self.policy {
            AnyPolicy::Eevdf(_) => 0,
            AnyPolicy::Cfs(cfs) => cfs.nr_spread_over,
        }
    }

    /// The virtual time from which an entity counts that slept here and wakes elsewhere; under EEVDF nobody asks.
    #[inline(always)]
    pub(crate) fn min_vruntime(&self) -> VTime {
        match &self.policy {
            AnyPolicy::Eevdf(_) => VTime::START,
            AnyPolicy::Cfs(cfs) => cfs.min_vruntime,
        }
    }

    /// Whether the rule holds on this queue.
    pub(crate) fn feature(&self, feature: Feature) -> bool {
        self.members.on(feature)
    }

    /// Lets the rule hold on this queue from now on, or not.
    pub(crate) fn set_feature(&mut self, feature: Feature, on: bool) {
        self.members.features.set(feature, on);
        // A rule that is taken out leaves nobody preferred.
        self.members.next_buddy = None;
        if let AnyPolicy::Cfs(cfs) = &mut self.policy {
            cfs.forget_all_buddies();
        }
    }

    /// The load of this queue up to `now`.
    pub(crate) fn load(&mut self, now: Nanos) -> &Signals {
        self.load.age(&self.members, now);
        self.load.signals()
    }

    /// The time of the queue's signals, to which who leaves it without its lock is aged.
    #[inline(always)]
    pub(crate) fn load_time(&self) -> PeltTime {
        self.load.time()
    }

    /// Takes out what has left without this queue's lock.
    pub(crate) fn forget_load(&mut self, removed: Removed) {
        self.load.forget(removed);
    }

    /// `entity`, which will join here, slept on another queue, whose signals stood at `time`, by `lag` too early because its CPU idles,
    /// and whose zero point was `zero`. Returns what that queue has to forget.
    pub(crate) fn comes_from(
        &mut self,
        entity: EntityRef<F>,
        (zero, time, lag): (VTime, PeltTime, Nanos),
        now: Nanos,
    ) -> Removed {
        self.charge(now);
        ask!(self, comes_from in members(entity, zero));
        let (weight, mut removed) = (self.members.key(entity).weight, Removed::default());
        entity.set_signals(&mut self.members.right, |signals| {
            if signals.is_attached() {
                signals.leave(time, lag, weight, &mut removed);
            }
        });
        removed
    }

    /// The signals of `entity`, which belongs here, as of its last event.
    pub(crate) fn signals(&self, entity: EntityRef<F>) -> Signals {
        entity.signals(&self.members.right)
    }

    /// Whether `entity`, which is queued here, sleeps.
    #[inline(always)]
    pub(crate) fn is_delayed(&self, entity: EntityRef<F>) -> bool {
        self.members.is_delayed(entity)
    }

    /// Those who wait, delayed ones included, in the order of the timeline.
    pub(crate) fn in_line(&self) -> impl Iterator<Item = EntityRef<F>> + '_ {
        self.members.timeline.iter(&self.members.right)
    }

    /// Charges the running entity up to `now`. True when somebody else should be considered.
    #[inline]
    pub(crate) fn charge(&mut self, now: Nanos) -> bool {
        let Some(running) = self.members.running else { return false };
        let ran = self.members.set_own(running, |own| {
            // A clock that stepped back charges nothing.
            let ran = now.saturating_sub(own.exec_start);
            if ran > 0 {
                own.exec_start = now;
            }
            ran
        });
        if ran == 0 {
            return false;
        }
        running.add_exec(&mut self.members.right, ran);
        self.members.set_key(running, |key| key.vruntime += key.weight.virtual_time(ran.min(LONGEST_CHARGE)));
        ask!(self, ran in members(running))
    }

    /// The tick: charges, and asks whether somebody else should be considered.
    #[inline]
    pub(crate) fn tick(&mut self, now: Nanos) -> bool {
        let over = self.charge(now);
        self.load.age(&self.members, now);
        let Some(running) = self.members.running else { return false };
        self.load.age_entity(&mut self.members, running, Presence::Running);
        over || ask!(self, tick in members(running))
    }

    /// `entity` joins with the parameters `params`.
    pub(crate) fn enqueue(&mut self, entity: EntityRef<F>, params: TaskParams, arrival: Arrival, now: Nanos) {
        debug_assert!(!self.members.own(entity).on_rq, "enqueued twice");
        self.charge(now);
        self.load.age(&self.members, now);
        let weights = (self.members.key(entity).weight, params.weight());
        self.load.comes(&mut self.members, entity, weights, arrival == Arrival::Fresh);
        if weights.0 != weights.1 {
            self.reweight_away(entity, weights.1);
        }
        self.apply_slice(entity, params);
        ask!(self, place in members(entity, arrival, now));
        self.members.set_own(entity, |own| own.on_rq = true);
        self.members.nr += 1;
        self.members.weight += u64::from(weights.1.get());
        self.members.slices.insert(&self.members.right, entity);
        ask!(self, waits in members(entity));
    }

    /// `entity`, waiting or running, leaves, unless it falls asleep and waits on.
    pub(crate) fn dequeue(&mut self, entity: EntityRef<F>, departure: Departure, now: Nanos) -> Left {
        debug_assert!(self.members.own(entity).on_rq, "dequeued twice");
        self.charge(now);
        self.load.age(&self.members, now);
        let presence = if self.members.running == Some(entity) { Presence::Running } else { Presence::Waiting };
        self.load.age_entity(&mut self.members, entity, presence);
        match departure {
            Departure::Sleep => self.load.falls_asleep(&mut self.members, entity),
            Departure::Exit | Departure::Move => self.load.leaves(&mut self.members, entity),
        }
        if ask!(self, departs in members(entity, departure)) {
            self.delay(entity);
            return Left::Delayed;
        }
        self.take_out(entity, departure);
        Left::Gone
    }

    /// The delayed `entity` wakes up.
    pub(crate) fn undelay(&mut self, entity: EntityRef<F>, now: Nanos) {
        debug_assert!(self.members.own(entity).delayed);
        self.charge(now);
        self.load.age(&self.members, now);
        self.load.age_entity(&mut self.members, entity, Presence::Delayed);
        self.load.wakes(&self.members, entity);
        let moves = ask!(self, settles in members(entity));
        self.members.nr_delayed -= 1;
        self.members.set_own(entity, |own| own.delayed = false);
        if moves {
            ask!(self, leaves_the_line in members(entity));
            ask!(self, place in members(entity, Arrival::Undelayed, now));
            ask!(self, waits in members(entity));
        }
    }

    /// The delayed `entity` leaves, asleep.
    pub(crate) fn give_up(&mut self, entity: EntityRef<F>, now: Nanos) {
        debug_assert!(self.members.own(entity).delayed);
        self.charge(now);
        self.load.age(&self.members, now);
        self.end_delay(entity);
    }

    /// Who should run: the running entity or a waiting one. None if nobody is runnable.
    ///
    /// Delayed entities that come to their turn leave; `left` is told of each.
    #[inline(always)]
    pub(crate) fn pick(&mut self, now: Nanos, left: impl FnMut(EntityRef<F>)) -> Option<EntityRef<F>> {
        self.load.age(&self.members, now);
        let picked = self.pick_with(Protection::Honoured, left);
        if let Some(running) = picked.filter(|_| picked == self.members.running) {
            ask!(self, goes_on in members(running));
        }
        picked
    }

    #[inline]
    fn pick_with(&mut self, protection: Protection, mut left: impl FnMut(EntityRef<F>)) -> Option<EntityRef<F>> {
        loop {
            let best = ask!(self, choose in members(protection))?;
            if !self.members.is_delayed(best) {
                return Some(best);
            }
            self.end_delay(best);
            left(best);
        }
    }

    /// `entity`, which waits here, starts to run.
    #[inline]
    pub(crate) fn start(&mut self, entity: EntityRef<F>, now: Nanos) {
        debug_assert!(self.members.running.is_none());
        self.load.age(&self.members, now);
        self.load.age_entity(&mut self.members, entity, Presence::Waiting);
        ask!(self, leaves_the_line in members(entity));
        let sum_exec = entity.sum_exec();
        self.members.set_own(entity, |own| {
            own.exec_start = now;
            own.prev_sum_exec = sum_exec;
        });
        ask!(self, starts in members(entity));
        self.members.running = Some(entity);
    }

    /// The running entity, charged up to `now`, goes back to waiting. Nothing if none runs.
    #[inline]
    pub(crate) fn stop(&mut self, now: Nanos) {
        if let Some(entity) = self.members.running {
            self.load.age(&self.members, now);
            self.load.age_entity(&mut self.members, entity, Presence::Running);
            self.members.running = None;
            ask!(self, waits in members(entity));
        }
    }

    /// Nobody here is runnable: the CPU turns to its idle task.
    #[inline]
    pub(crate) fn goes_idle(&mut self, now: Nanos) {
        self.load.age(&self.members, now);
        self.load.goes_idle(now);
    }

    /// Starts the clock of an entity that runs on this CPU outside the fair class (the idle task, the stop task).
    #[inline]
    pub(crate) fn start_outsider(&mut self, entity: EntityRef<F>, now: Nanos) {
        self.members.set_own(entity, |own| own.exec_start = now);
    }

    /// Charges an entity that [`start_outsider`](Self::start_outsider) started.
    #[inline]
    pub(crate) fn charge_outsider(&mut self, entity: EntityRef<F>, now: Nanos) {
        let ran = self.members.set_own(entity, |own| {
            let ran = now.saturating_sub(own.exec_start);
            own.exec_start = own.exec_start.max(now);
            ran
        });
        entity.add_exec(&mut self.members.right, ran);
    }

    /// Whether `wakee`, which was just queued, should run instead of the running entity. `left` as in [`pick`](Self::pick).
    pub(crate) fn preempts(&mut self, wakee: EntityRef<F>, arrival: Arrival, left: impl FnMut(EntityRef<F>)) -> bool {
        let Some(running) = self.members.running else { return true };
        let verdict = ask!(self, preemption in members(running, wakee, arrival));
        let preempts = match verdict {
            Verdict::No => return false,
            Verdict::Yes => true,
            Verdict::IfPicked(protection) => self.pick_with(protection, left) == Some(wakee),
        };
        ask!(self, decided in members(running, wakee, verdict, preempts));
        preempts
    }

    /// The running entity lets others go first, if there are any.
    pub(crate) fn yield_running(&mut self, now: Nanos) {
        self.charge(now);
        if let Some(running) = self.members.running.filter(|_| self.members.nr > 1) {
            ask!(self, yields in members(running));
        }
    }

    /// Gives `entity`, which is queued here, the parameters `params`.
    pub(crate) fn reweight(&mut self, entity: EntityRef<F>, params: TaskParams, now: Nanos) {
        debug_assert!(self.members.own(entity).on_rq);
        self.charge(now);
        let (mut key, mut own) = (self.members.key(entity), self.members.own(entity));
        if key.weight != params.weight() {
            self.load.age(&self.members, now);
            let presence = match self.members.running {
                Some(running) if running == entity => Presence::Running,
                _ if own.delayed => Presence::Delayed,
                _ => Presence::Waiting,
            };
            self.load.age_entity(&mut self.members, entity, presence);
            self.load.reweights(&mut self.members, entity, params.weight());
            self.members.weight -= u64::from(key.weight.get());
            self.members.weight += u64::from(params.weight().get());
            ask!(self, reweight(&self.members, entity, &mut key, &mut own, params.weight()));
        }
        let waits = self.members.running != Some(entity);
        if waits {
            ask!(self, leaves_the_line in members(entity));
        }
        self.members.slices.remove(&self.members.right, entity);
        self.members.write_back(entity, key, own);
        self.apply_slice(entity, params);
        self.members.slices.insert(&self.members.right, entity);
        if waits {
            ask!(self, waits in members(entity));
        }
    }

    /// `entity`, which is in no tree, gets the policy and the slice of `params`.
    #[inline(always)]
    fn apply_slice(&mut self, entity: EntityRef<F>, params: TaskParams) {
        let slice = params.slice.map_or(self.members.slices.default_slice(), |slice| slice.nanos());
        self.members.set_key(entity, |key| key.slice = slice);
        self.members.set_own(entity, |own| {
            own.policy = params.policy;
            own.custom_slice = params.slice.is_some();
        });
    }

    /// `entity`, which is on no queue, weighs `weight` from now on.
    #[cold]
    fn reweight_away(&mut self, entity: EntityRef<F>, weight: Weight) {
        let (mut key, mut own) = (self.members.key(entity), self.members.own(entity));
        ask!(self, reweight_away(&mut key, &mut own, weight));
        self.members.write_back(entity, key, own);
    }

    /// `entity` falls asleep and waits on, with the lag it has now.
    #[inline]
    fn delay(&mut self, entity: EntityRef<F>) {
        self.members.set_own(entity, |own| own.delayed = true);
        self.members.nr_delayed += 1;
        self.members.forget_buddy(entity);
        if self.members.running == Some(entity) {
            self.members.running = None;
            ask!(self, waits in members(entity));
        }
    }

    /// The delayed `entity` leaves, asleep. The queue's signals are up to date.
    #[cold]
    fn end_delay(&mut self, entity: EntityRef<F>) {
        self.load.age_entity(&mut self.members, entity, Presence::Delayed);
        ask!(self, departs in members(entity, Departure::Sleep));
        self.take_out(entity, Departure::Sleep);
    }

    /// `entity` leaves with what the policy settled.
    #[inline]
    fn take_out(&mut self, entity: EntityRef<F>, departure: Departure) {
        if self.members.running == Some(entity) {
            self.members.running = None;
        } else {
            ask!(self, leaves_the_line in members(entity));
            self.members.forget_buddy(entity);
        }
        self.members.slices.remove(&self.members.right, entity);
        self.members.nr -= 1;
        self.members.weight -= u64::from(self.members.key(entity).weight.get());
        let was_delayed = self.members.set_own(entity, |own| {
            own.on_rq = false;
            core::mem::take(&mut own.delayed)
        });
        self.members.nr_delayed -= u32::from(was_delayed);
        ask!(self, has_left in members(entity, departure));
    }
}

#[cfg(any(test, feature = "model"))]
pub(crate) mod model;
