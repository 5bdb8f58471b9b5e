//! # What it is
//! CPUs that leave and come back.
//!
//! # How it works
//! A CPU leaves by itself, while it runs its idle or its stop task. First it is no longer among those that are online,
//! then it moves everybody off its queue. A placement looks at the set under the queue's lock, so it comes before the move
//! and is moved, or sees that the CPU has left and looks for another one.
//! A wake-up that was left in the wake list is passed on by the CPU that leaves, or by its waker if that came too late.
//!
//! A task of whose mask no CPU is online runs on any that is, until one comes back.
//!
//! # Invariants
//! 1. At least one CPU is online once one was.
//! 2. Nobody waits for a CPU that is offline.
//!
//! # Cost
//! That of moving the tasks there, one by one.

use core::sync::atomic::Ordering::{Relaxed, Release};

use super::{Error, Here, Scheduler, place::Coming};
use crate::{
    config::Config,
    mask::SharedMask,
    platform::{CpuId, Platform},
    policy::Departure,
    sync::Word,
    task::{Class, TaskRef, on_cpu},
    token::IrqOff,
};

impl<C: Config> Scheduler<'_, C> {
    /// Takes the calling CPU offline, which runs its idle or its stop task. Its tasks move to other CPUs at once.
    ///
    /// Afterwards it is chosen for nobody, and may be switched off. A kick may still be on its way to it; nothing depends on that.
    /// If it is not switched off, it goes on idling.
    ///
    /// # Errors
    /// [`Error::NotOnline`]; [`Error::NotIdle`] if it runs a task of the fair class; [`Error::LastCpu`] if no other CPU is online.
    pub fn go_offline(&self, irq: &IrqOff) -> Result<(), Error> {
        let here = self.here(irq);
        if !self.is_online(here.cpu) {
            return Err(Error::NotOnline(here.cpu));
        }
        if here.current().is_none_or(|current| current.is(Class::Fair)) {
            return Err(Error::NotIdle(here.cpu));
        }
        let turn = self.plugging.lock();
        if self.online().take(2).count() < 2 {
            return Err(Error::LastCpu(here.cpu));
        }
        self.online.set(here.cpu, false);
        drop(turn);
        while let Some(task) = self.take_anybody(&here) {
            self.place(&here, task, Coming::Moved);
        }
        for task in here.queue.take_wakees() {
            self.place(&here, task, Coming::Listed);
        }
        let mut inner = here.queue.lock();
        let now = inner.advance(self.platform.now(here.cpu));
        here.queue.publish_load_avg(&mut inner, now);
        self.observe_offline(here.queue);
        Ok(())
    }

    /// Brings the calling CPU, which went offline, back, and with it the tasks that no other CPU is allowed to run.
    ///
    /// # Errors
    /// [`Error::AlreadyOnline`]; [`Error::NotOnline`] if it never was: [`bring_online`](Self::bring_online) is for that.
    pub fn come_back(&self, irq: &IrqOff) -> Result<(), Error> {
        let here = self.here(irq);
        if here.current().is_none() {
            return Err(Error::NotOnline(here.cpu));
        }
        if self.is_online(here.cpu) {
            return Err(Error::AlreadyOnline(here.cpu));
        }
        let mut inner = here.queue.lock();
        let now = inner.advance(self.platform.now(here.cpu));
        if inner.current == inner.idle {
            self.observe_idle(here.queue, now);
        }
        drop(inner);
        self.online.set(here.cpu, true);
        for other in self.online().filter(|cpu| *cpu != here.cpu) {
            self.fetch_home(&here, other);
        }
        Ok(())
    }

    /// Moves the tasks off `from` that run there only because no CPU of their masks was online.
    fn fetch_home(&self, here: &Here<'_, C>, from: CpuId) {
        let queue = &self.queues[from.index()];
        loop {
            let mut inner = queue.lock();
            let stranger = |task: &TaskRef<C>| !task.mask.contains(from) && self.any_online(&task.mask.load());
            let kick =
                inner.current.is_some_and(|current| current.is(Class::Fair) && stranger(&current)) && queue.request();
            let waiting = inner.fair.in_line().filter(|entity| !inner.fair.is_delayed(*entity));
            // SAFETY: only entities of tasks of this configuration are queued.
            let found = waiting.map(|entity| unsafe { TaskRef::<C>::of(entity) }).find(stranger);
            if let Some(task) = found {
                let now = inner.advance(self.platform.now(from));
                _ = inner.fair.dequeue(task.entity_ref(), Departure::Move, now);
                task.words.queued_on.store(0, Relaxed);
                self.observe_leave(queue, task, from, now);
            }
            drop(inner);
            if kick {
                self.platform.kick(from);
            }
            let Some(task) = found else { return };
            if !self.hand_over(task, on_cpu::THEN_MOVE) {
                self.place(here, task, Coming::Moved);
            }
        }
    }

    /// Takes somebody off the calling CPU's queue who is awake; sleepers that wait to pay just leave. The caller owns the placement.
    fn take_anybody(&self, here: &Here<'_, C>) -> Option<TaskRef<C>> {
        let mut inner = here.queue.lock();
        let now = inner.advance(self.platform.now(here.cpu));
        loop {
            let entity = inner.fair.in_line().next()?;
            // SAFETY: only entities of tasks of this configuration are queued.
            let task = unsafe { TaskRef::<C>::of(entity) };
            if inner.fair.is_delayed(entity) {
                inner.fair.give_up(entity, now);
                // Release: as in `left_asleep`.
                task.words.queued_on.store(0, Release);
                continue;
            }
            _ = inner.fair.dequeue(entity, Departure::Move, now);
            task.words.queued_on.store(0, Relaxed);
            self.observe_leave(here.queue, task, here.cpu, now);
            return Some(task);
        }
    }
}
