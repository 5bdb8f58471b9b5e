// ArceOS and StarryOS users (arceos-org/arceos#170, Starry-OS/StarryOS#108; Zephyr's zephyrproject-rtos/zephyr#36652 is alike)
// saw pipe, wait and join on 4 CPUs end with everything blocked and nobody left to wake anybody.
// However messages, wake-ups and switches meet, every message is received, and everybody comes to an end.

use sched_core::{Spawn, State};

use crate::machine::{
    MS,
    sim::{Script, Sim, Step},
};

const MESSAGES: u32 = 200;

/// Answers each message of `parent`, and then exits.
fn child(parent: usize) -> Script {
    let mut turn = 0;
    Box::new(move |rng, _| {
        turn += 1;
        match (turn - 1) / 3 {
            round if round >= MESSAGES => Step::Exit,
            _ if turn % 3 == 1 => Step::Receive,
            _ if turn % 3 == 2 => Step::Run(rng.u64(1..20_000)),
            _ => Step::Send(parent),
        }
    })
}

/// Sends to all `children`, and waits for all answers, again and again.
fn parent(children: std::ops::Range<usize>) -> Script {
    let (mut round, mut sent, mut received) = (0, 0, 0);
    Box::new(move |_, _| {
        if sent == children.len() && received == children.len() {
            (round, sent, received) = (round + 1, 0, 0);
        }
        if round == MESSAGES {
            Step::Exit
        } else if sent < children.len() {
            sent += 1;
            Step::Send(children.start + sent - 1)
        } else {
            received += 1;
            Step::Receive
        }
    })
}

#[test]
fn everybody_comes_to_an_end() {
    for cpus in [1, 2, 4, 8] {
        for seed in 0..5 {
            let mut sim: Sim = Sim::new(cpus, State::On, seed);
            // Switches that take long, so that most wake-ups come during one.
            sim.switch_nanos = 1_000..40_000;
            sim.add(0, Spawn::default(), parent(1..7));
            for _ in 0..6 {
                sim.add(0, Spawn::default(), child(0));
            }
            sim.run(3_000 * MS);
            let stuck: Vec<_> = sim.members.iter().filter(|member| member.died.is_none()).map(|m| &m.task).collect();
            assert!(stuck.is_empty(), "{cpus} CPUs, seed {seed}: {stuck:?}");
        }
    }
}
