use super::*;
use proptest::prelude::*;

fn one(item: &str) -> Work {
    let mut all: Vec<_> = works(item.as_bytes(), 8).collect();
    assert_eq!(all.len(), 1);
    all.remove(0).unwrap()
}

fn refused(item: &str) -> String {
    let mut all: Vec<_> = works(item.as_bytes(), 8).collect();
    assert_eq!(all.len(), 1);
    all.remove(0).unwrap_err().to_string()
}

#[test]
fn the_default_line_is_the_interface_s() {
    let all: Vec<_> = works(b"pipe,messaging,spin", 8).map(|work| work.unwrap().to_string()).collect();
    assert_eq!(
        all,
        [
            "workload=pipe loops=100000 cpu=none size=4",
            "workload=messaging groups=10 fds=20 loops=100 size=100 via=pipe",
            "workload=spin tasks=16 nice=0 ms=2000 cpu=none slice_us=default policy=normal",
        ]
    );
}

#[test]
fn every_option_is_taken() {
    let all = [
        "pipe:loops=2000:cpu=7:size=65536",
        "messaging:groups=2:fds=100:loops=20:size=1:via=socket",
        "spin:tasks=2:nice=-20+5+19:ms=1:cpu=0:slice_us=3000:policy=batch+idle",
    ];
    for item in all {
        let (name, options) = item.split_once(':').unwrap();
        assert_eq!(one(item).to_string(), format!("workload={name} {}", options.replace(':', " ")));
    }
    assert_eq!(one("pipe:cpu=3:cpu=none:loops=1:loops=7"), Work::Pipe(Pipe { loops: 7, ..Pipe::default() }));
}

#[test]
fn tables_match_their_setters() {
    assert_eq!(Pipe::NAMES.len(), Pipe::SETTERS.len());
    assert_eq!(Messaging::NAMES.len(), Messaging::SETTERS.len());
    assert_eq!(Spin::NAMES.len(), Spin::SETTERS.len());
}

#[test]
fn lists_are_used_in_turn() {
    let Work::Spin(spin) = one("spin:tasks=5:nice=0+5:policy=normal+batch+idle") else { panic!() };
    let all: Vec<_> = (0..5).map(|task| spin.parameters(task)).map(|(nice, policy)| (nice.get(), policy)).collect();
    let (n, b, i) = (Policy::Normal, Policy::Batch, Policy::Idle);
    assert_eq!(all, [(0, n), (5, b), (0, i), (5, n), (0, b)]);
}

#[test]
fn a_wrong_workload_does_not_touch_the_others() {
    let all: Vec<_> = works(b"pipe:loops=0,wrong,,spin,messaging:x=1", 8).map(|work| work.is_ok()).collect();
    assert_eq!(all, [false, false, false, true, false]);
    assert_eq!(works(b"none", 8).count(), 0);
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    for (item, line) in [
        ("pip", "run: pip: there is no workload 'pip'; accepted: pipe, messaging, spin; it counts as failed"),
        ("", "run: : a workload's name is missing; accepted: pipe, messaging, spin; it counts as failed"),
        (
            "pipe:groups=1",
            "run: pipe:groups=1: there is no option 'groups'; accepted: loops, cpu, size; it counts as failed",
        ),
        (
            "pipe:loops",
            "run: pipe:loops: 'loops' is not understood; accepted: a decimal number from 1 to 1000000000; \
             it counts as failed",
        ),
        (
            "spin:cpu=8",
            "run: spin:cpu=8: 'cpu=8' is not understood; accepted: a CPU that runs, 0 to 7, or none; it counts as failed",
        ),
    ] {
        assert_eq!(refused(item), line);
    }
    let only = works(b"pipe:cpu=1", 1).next().unwrap().unwrap_err().to_string();
    assert!(only.contains("accepted: 0, the only CPU that runs, or none"), "{only}");
}

#[test]
fn zero_and_absurd_numbers_are_refused() {
    for item in [
        "pipe:loops=0",
        "pipe:loops=1000000001",
        "pipe:loops=-1",
        "pipe:loops=1e3",
        "pipe:loops=0x10",
        "pipe:loops= 1",
        "pipe:loops=99999999999999999999999999999999",
        "pipe:size=0",
        "pipe:size=65537",
        "pipe:cpu=",
        "pipe:cpu=18446744073709551616",
        "messaging:groups=0",
        "messaging:groups=1001",
        "messaging:fds=0",
        "messaging:fds=101",
        "messaging:via=tcp",
        "spin:tasks=0",
        "spin:tasks=1001",
        "spin:ms=0",
        "spin:ms=86400001",
        "spin:nice=20",
        "spin:nice=-21",
        "spin:nice=",
        "spin:nice=0+",
        "spin:nice=+5",
        "spin:nice=--5",
        "spin:slice_us=99",
        "spin:slice_us=100001",
        "spin:policy=fifo",
        "spin:policy=normal+",
    ] {
        assert!(refused(item).contains("is not understood"), "{item}");
    }
    let long = format!("spin:nice=0{}", "+0".repeat(64));
    assert!(refused(&long).contains("up to 64"));
    assert!(one(&long[..long.len() - 2]).to_string().ends_with("policy=normal"));
}

#[test]
fn messages_are_counted_without_overflow() {
    assert_eq!(Messaging::default().messages(), 400_000);
    assert_eq!(Messaging::default().threads(), 400);
    let most = Messaging { groups: 1_000, fds: 100, loops: 1_000_000_000, ..Messaging::default() };
    assert_eq!(most.messages(), 10_000_000_000_000_000);
}

proptest! {
    #[test]
    fn no_list_panics(list in proptest::collection::vec(any::<u8>(), 0..2048), cpus in 0..70_usize) {
        for work in works(&list, cpus) {
            if let Err(why) = work {
                let line = why.to_string();
                prop_assert!(!line.contains('\n') && line.len() < 1024);
            }
        }
    }

    #[test]
    fn no_value_panics_and_what_is_taken_prints_back(
        name in "pipe|messaging|spin",
        options in proptest::collection::vec("(loops|cpu|size|groups|fds|via|tasks|nice|ms|slice_us|policy)=[-+0-9a-z]{0,6}", 0..4),
    ) {
        let item = format!("{name}:{}", options.join(":"));
        for work in works(item.as_bytes(), 8).flatten() {
            let shown = work.to_string().replace(" slice_us=default", "").replacen("workload=", "", 1).replace(' ', ":");
            let again = works(shown.as_bytes(), 8).next();
            prop_assert_eq!(again, Some(Ok(work)));
        }
    }
}
