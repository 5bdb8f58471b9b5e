//! What the scheduler of a [`Machine`](super::Machine) sees of it: clocks, the CPU that acts, kicks.

use std::cell::{Cell, RefCell};

use sched_core::{Config, CpuId, IrqOff, Nanos, Platform, Scheduler};

use super::watched;

/// The platform.
pub struct Board<C: Config> {
    pub(super) here: Cell<CpuId>,
    pub(super) clocks: Vec<Cell<Nanos>>,
    kicks: RefCell<Vec<CpuId>>,
    /// Whom to ask whether a request came before its kick.
    scheduler: Cell<Option<&'static Scheduler<'static, C>>>,
}

impl<C: Config> Board<C> {
    pub(super) fn new(clocks: impl IntoIterator<Item = Nanos>) -> Self {
        Self {
            here: Cell::new(CpuId(0)),
            clocks: clocks.into_iter().map(Cell::new).collect(),
            kicks: RefCell::default(),
            scheduler: Cell::new(None),
        }
    }

    pub(super) fn belongs_to(&self, scheduler: &'static Scheduler<'static, C>) {
        self.scheduler.set(Some(scheduler));
    }

    /// The CPUs kicked since the last call, in order.
    pub(super) fn take_kicks(&self) -> Vec<CpuId> {
        self.kicks.take()
    }
}

impl<C: Config<Platform = Self>> Platform for Board<C> {
    fn now(&self, cpu: CpuId) -> Nanos {
        self.clocks[cpu.index()].get()
    }

    fn this_cpu(&self) -> CpuId {
        self.here.get()
    }

    fn kick(&self, cpu: CpuId) {
        assert_eq!(watched::held(), 0, "kicked with a lock held");
        assert_ne!(cpu, self.here.get(), "a CPU kicks itself");
        let scheduler = self.scheduler.get().expect("kicked before the machine was made");
        let kicker = self.here.replace(cpu);
        // SAFETY: the one thread stands in for the kicked CPU for a moment; nothing interrupts it.
        let irq = unsafe { IrqOff::assert() };
        assert!(scheduler.need_resched(&irq), "kicked before the request was set");
        self.here.set(kicker);
        self.kicks.borrow_mut().push(cpu);
    }
}
