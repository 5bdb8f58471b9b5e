//! The core allocates nothing and frees nothing: tasks live through everything there is with an allocator that counts.
//!
//! Only calls into the scheduler are counted. The embedder here has static tasks and two CPUs in one thread.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use sched_core::*;

thread_local! {
    /// Whether this thread is inside the core, and how often it allocated or freed there.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: by this function's contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count();
        // SAFETY: by this function's contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn count() {
    if INSIDE.get() {
        COUNT.set(COUNT.get() + 1);
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A call into the core, counted.
fn inside<R>(call: impl FnOnce() -> R) -> R {
    INSIDE.set(true);
    let result = call();
    INSIDE.set(false);
    result
}

struct Task {
    sched: SchedTask<Two>,
}

/// The clock of both CPUs, who acts, and how many kicks there were.
struct Machine {
    now: AtomicU64,
    here: AtomicU32,
    kicks: AtomicU32,
}

impl Platform for Machine {
    fn now(&self, _: CpuId) -> Nanos {
        self.now.load(Relaxed)
    }
    fn this_cpu(&self) -> CpuId {
        CpuId(self.here.load(Relaxed))
    }
    fn kick(&self, _: CpuId) {
        self.kicks.fetch_add(1, Relaxed);
    }
}

struct Two;
impl Config for Two {
    type Platform = Machine;
    type Sync = Spin;
    type Mask = Mask64;
    type Task = &'static Task;
    type Schedstats = Switch;
    type Psi = Switch;
    type Watch = Switch;
    type Features = Switchable;
    const HZ: u32 = 250;
}
task_ptr!(Two: &'static Task { sched });

fn task() -> &'static Task {
    Box::leak(Box::new(Task { sched: SchedTask::new() }))
}

/// The counter counts, or the test below shows nothing.
#[test]
fn an_allocation_inside_is_counted() {
    let before = COUNT.get();
    inside(|| std::hint::black_box(Box::new(1)));
    assert_eq!(COUNT.get() - before, 1, "the box came in and its memory went outside");
}

#[test]
fn a_life_of_tasks_allocates_nothing() {
    for algorithm in [Algorithm::Eevdf, Algorithm::Cfs] {
        live(algorithm);
    }
}

fn live(algorithm: Algorithm) {
    let before = COUNT.get();
    // SAFETY: this thread is both CPUs, one call after another, and nothing interrupts it.
    let irq = unsafe { IrqOff::assert() };
    let tunables = Tunables::for_cpus(2).with(algorithm);
    let queues = [CpuQueue::new(&tunables), CpuQueue::new(&tunables)];
    let machine = Machine { now: AtomicU64::new(1_000_000_000), here: AtomicU32::new(0), kicks: AtomicU32::new(0) };
    let gates =
        Gates { schedstats: Switch::new(State::On), psi: Switch::new(State::On), watch: Switch::new(State::On) };
    let sched = Scheduler::<Two>::new(&queues, machine, gates).expect("few CPUs");
    let on = |cpu: u32| sched.platform().here.store(cpu, Relaxed);
    let idles = [task(), task()];
    for cpu in 0..2 {
        on(cpu);
        inside(|| sched.bring_online(&irq, idles[cpu as usize])).expect("a new CPU");
    }
    let tasks: Vec<_> = (0..12).map(|_| task()).collect();
    for task in &tasks {
        inside(|| sched.spawn(&irq, task, Spawn::default())).expect("a new task");
    }
    let (mut rng, mut alive, mut done) = (fastrand::Rng::with_seed(7), tasks.len(), [0_u32; 9]);
    let mut schedule = |reason: Reason<Two>| {
        let dead = inside(|| match sched.schedule(&irq, reason) {
            Decision::Switch { .. } => sched.finish_switch(&irq),
            Decision::Stay => None,
        });
        alive -= usize::from(dead.is_some());
        alive
    };
    for step in 0..20_000 {
        on(rng.u32(..2));
        sched.platform().now.fetch_add(rng.u64(1..3_000_000), Relaxed);
        let what = rng.usize(..8);
        let some = tasks[rng.usize(..tasks.len())];
        done[what] += 1;
        match what {
            0 => inside(|| sched.tick(&irq)),
            1 => drop(inside(|| sched.wake(&irq, some))),
            2 if !sched.is_idle(&irq) => drop(schedule(Reason::Yield)),
            3 if !sched.is_idle(&irq) => {
                let sleep = inside(|| sched.prepare(&irq, SleepKind::Interruptible));
                schedule(Reason::Block(sleep));
            }
            4 => {
                let params = TaskParams {
                    nice: Nice::new(rng.i32(-20..20)).expect("in range"),
                    policy: [Policy::Normal, Policy::Batch, Policy::Idle][rng.usize(..3)],
                    slice: rng.bool().then(|| Slice::clamped(rng.u64(100_000..10_000_000))),
                };
                let _ = inside(|| sched.set_params(&irq, some, params));
            }
            5 => {
                let cpus = [&[0][..], &[1], &[0, 1]][rng.usize(..3)];
                let mask: Mask64 = cpus.iter().copied().map(CpuId).collect();
                let _ = inside(|| sched.set_affinity(&irq, some, mask));
            }
            6 => drop(std::hint::black_box(inside(|| sched.task_stats(&irq, some)))),
            // Half of them die on the way.
            7 if step % 200 == 0 && !sched.is_idle(&irq) => {
                done[8] += 1;
                if schedule(Reason::Exit) == 6 {
                    break;
                }
            }
            _ => {}
        }
        if inside(|| sched.need_resched(&irq)) {
            schedule(Reason::Preempt);
        }
    }
    assert_eq!(COUNT.get() - before, 0, "{algorithm:?} allocated");
    assert!(done.iter().all(|&times| times > 3), "something was never done: {done:?}");
    assert!(sched.platform().kicks.load(Relaxed) > 0);
}
