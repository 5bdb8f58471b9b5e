//! CFS through the front door: what is not the queue's own.

use sched_core::{Algorithm, Reason};

use crate::machine::{MS, Machine, TICK};

fn cfs(cpus: u32) -> Machine {
    Machine::under(Algorithm::Cfs, cpus)
}

fn run(m: &Machine, ticks: u32) {
    for _ in 0..ticks {
        m.advance(TICK);
        for cpu in m.cpus() {
            cpu.tick();
            cpu.leave_interrupt();
        }
    }
}

#[test]
fn a_sleeper_has_its_credit_wherever_it_wakes() {
    // It slept beside a task that ran alone ever since, so nothing but the clock moved on its old queue.
    for to in [0, 1] {
        let m = cfs(2);
        let sleeper = m.cpu(0).spawn_on("sleeper", &[0]);
        let _hogs = [0, 1].map(|cpu| m.cpu(cpu).spawn_on("hog", &[cpu]));
        m.cpus().for_each(|cpu| cpu.leave_interrupt());
        run(&m, 20);
        m.cpu(0).tick_until_runs(&sleeper);
        m.cpu(0).block();
        run(&m, 500);
        m.cpu(0).set_affinity(&sleeper, &[to]).unwrap();
        m.cpu(to).wake(&sleeper);
        assert!(m.cpu(to).need_resched(), "on CPU {to} it gets no credit for 2 s of sleep");
    }
}

#[test]
fn a_yield_is_for_one_decision() {
    for yields in [false, true] {
        let m = cfs(1);
        let cpu = m.cpu(0);
        let first = cpu.spawn("first");
        cpu.leave_interrupt();
        m.advance(MS);
        // It starts a slice behind: too far to be taken for it.
        let _second = cpu.spawn("second");
        if yields {
            assert!(!cpu.leave(Reason::Yield));
        }
        // Now it is near enough; but nobody has yielded since.
        m.advance(2_500_000);
        cpu.switch(Reason::Preempt);
        assert!(cpu.runs(&first), "the yield of long ago is remembered");
    }
}

#[test]
fn nobody_is_kept_asleep_on_a_queue() {
    let m = cfs(1);
    let cpu = m.cpu(0);
    let (a, b) = (cpu.spawn("a"), cpu.spawn("b"));
    cpu.leave_interrupt();
    run(&m, 7);
    m.advance(3 * MS);
    let sleeper = if cpu.runs(&a) { &a } else { &b };
    assert!(cpu.block());
    assert!(m.load_of(sleeper).is_none());
    assert_eq!(m.loads(), [1]);
}
