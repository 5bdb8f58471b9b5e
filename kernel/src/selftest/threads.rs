//! Tests of the thread layer on the machine itself.
//!
//! # What it is
//! Storms of threads that a scheduler with a hole would not survive; see the table in [`crate::selftest`].
//!
//! # How it works
//! They run in the first thread of the whole kernel, on all CPUs.
//! Each counts what must come out and compares; a wake-up that is lost shows as a deadlock report.
//!
//! # Invariants
//! 1. No test looks at how long something took, but for "not before its time".
//!
//! # Cost
//! None unless asked for.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use sched_core::{CpuId, Mask256, Nice, SleepKind, TaskParams};

use crate::arch::exit::Verdict;
use crate::arch::percpu::cpu_index;
use crate::arch::tsc;
use crate::pipe::{CAPACITY, PIPE_BUF, Pipe};
use crate::socketpair::SocketPair;
use crate::thread::{self, Daemon, JoinHandle, SpawnOptions, spawn};
use crate::wait::WaitQueue;
use crate::{println, sched, stack, timer};

/// How a test ends.
pub type Outcome = Result<(), &'static str>;

/// The test called `name`.
pub fn find(name: &str) -> Option<fn() -> Outcome> {
    Some(match name {
        "threads" => threads,
        "pipes" => pipes,
        "join" => joins,
        "timeouts" => timeouts,
        "deadlock" => deadlock,
        "crash" => crash,
        "preemption" => preemption,
        "affinity" => affinity,
        "exitstorm" => exit_storm,
        "wakestorm" => wake_storm,
        _ => return None,
    })
}

/// Runs `test`, says how it ended, and gives the verdict of the run.
pub fn run(name: &str, test: fn() -> Outcome) -> Verdict {
    match test() {
        Ok(()) => {
            println!("selftest {name} status=ok");
            Verdict::Done
        }
        Err(why) => {
            println!("selftest {name} status=failed reason=\"{why}\"");
            Verdict::Failed
        }
    }
}

/// Numbers without a pattern.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

fn start(name: &str, f: impl FnOnce() + Send + 'static) -> JoinHandle {
    start_with(SpawnOptions { name, ..SpawnOptions::default() }, f)
}

fn start_with(options: SpawnOptions<'_>, f: impl FnOnce() + Send + 'static) -> JoinHandle {
    match spawn(options, f) {
        Ok(handle) => handle,
        Err(error) => panic!("selftest: {error}"),
    }
}

fn join_all(handles: Vec<JoinHandle>) {
    handles.into_iter().for_each(JoinHandle::join);
}

fn only(cpu: usize) -> Mask256 {
    Mask256::only(CpuId(cpu as u32))
}

fn expect(holds: bool, otherwise: &'static str) -> Outcome {
    if holds { Ok(()) } else { Err(otherwise) }
}

/// 64 threads: 32 pairs pass a growing number to and fro through pipes, and start and join short threads meanwhile.
fn threads() -> Outcome {
    const PAIRS: usize = 32;
    const ROUNDS: u64 = 200;
    let children = Arc::new(AtomicU64::new(0));
    let mut handles = Vec::new();
    for pair in 0..PAIRS {
        let (ping_out, ping_in) = Pipe::pair(CAPACITY);
        let (pong_out, pong_in) = Pipe::pair(CAPACITY);
        let mine = children.clone();
        handles.push(start(&format!("ping/{pair}"), move || {
            for round in 0..ROUNDS {
                ping_in.write(&(round * 2).to_le_bytes()).expect("the partner reads");
                let mut answer = [0; 8];
                assert_eq!(pong_out.read(&mut answer), Ok(8), "a whole answer");
                assert_eq!(u64::from_le_bytes(answer), round * 2 + 1, "the answer to this question");
                if round % 16 == pair as u64 % 16 {
                    let children = mine.clone();
                    start("child", move || {
                        children.fetch_add(1, Ordering::Relaxed);
                    })
                    .join();
                }
            }
        }));
        handles.push(start(&format!("pong/{pair}"), move || {
            let mut question = [0; 8];
            while ping_out.read(&mut question) == Ok(8) {
                pong_in.write(&(u64::from_le_bytes(question) + 1).to_le_bytes()).expect("the partner reads");
                if question[0] % 64 == 0 {
                    thread::yield_now();
                }
            }
        }));
    }
    join_all(handles);
    let expected: u64 =
        (0..PAIRS as u64).map(|pair| (0..ROUNDS).filter(|round| round % 16 == pair % 16).count() as u64).sum();
    expect(children.load(Ordering::Relaxed) == expected, "a child was lost")
}

/// Many writers of whole pieces into pipes of several capacities, one reader each that takes them apart again;
/// then many readers; then sockets; then ends that go away.
fn pipes() -> Outcome {
    for capacity in [PIPE_BUF, PIPE_BUF + 1000, CAPACITY] {
        whole_pieces(capacity)?;
    }
    many_readers()?;
    sockets()?;
    ends()
}

/// Each message: its length, its writer, its number, filling.
fn whole_pieces(capacity: usize) -> Outcome {
    const WRITERS: usize = 12;
    const MESSAGES: u64 = 150;
    let (reader, writer) = Pipe::pair(capacity);
    let mut handles = Vec::new();
    for id in 0..WRITERS {
        let writer = writer.clone();
        handles.push(start(&format!("writer/{id}"), move || {
            let mut random = Random(id as u64 + 1);
            for number in 0..MESSAGES {
                let len = 16 + random.below([32, 256, PIPE_BUF as u64 - 15][number as usize % 3]) as usize;
                let mut message = vec![id as u8; len];
                message[..4].copy_from_slice(&(len as u32).to_le_bytes());
                message[4..12].copy_from_slice(&number.to_le_bytes());
                assert_eq!(writer.write(&message), Ok(len), "all of it is written");
            }
        }));
    }
    drop(writer);
    let mut next = [0; WRITERS];
    let mut message = [0; PIPE_BUF];
    let fill = |out: &mut [u8]| {
        let mut filled = 0;
        while filled < out.len() {
            match reader.read(&mut out[filled..]) {
                Ok(0) | Err(_) => break,
                Ok(count) => filled += count,
            }
        }
        filled
    };
    loop {
        match fill(&mut message[..16]) {
            0 => break,
            16 => {}
            _ => return Err("the stream ends inside a message"),
        }
        let len = u32::from_le_bytes([message[0], message[1], message[2], message[3]]) as usize;
        let number = u64::from_le_bytes(message[4..12].try_into().unwrap_or_default());
        let id = message[12];
        expect((16..=PIPE_BUF).contains(&len) && usize::from(id) < WRITERS, "a message was torn")?;
        expect(fill(&mut message[16..len]) == len - 16, "the stream ends inside a message")?;
        expect(message[12..len].iter().all(|&byte| byte == id), "messages are mixed")?;
        expect(next[usize::from(id)] == number, "messages are out of order")?;
        next[usize::from(id)] += 1;
    }
    join_all(handles);
    expect(next.iter().all(|&count| count == MESSAGES), "messages are missing")
}

fn many_readers() -> Outcome {
    const SIDES: usize = 8;
    const BYTES: usize = 100_000;
    let (reader, writer) = Pipe::pair(5000);
    let read = Arc::new(AtomicUsize::new(0));
    let sum = Arc::new(AtomicU64::new(0));
    let mut handles = Vec::new();
    for id in 0..SIDES {
        let (writer, reader) = (writer.clone(), reader.clone());
        let (read, sum) = (read.clone(), sum.clone());
        handles.push(start(&format!("writer/{id}"), move || {
            let mut random = Random(id as u64 + 77);
            let data = vec![id as u8 + 1; 9000];
            let mut left = BYTES;
            while left > 0 {
                let len = left.min(1 + random.below(9000) as usize);
                assert_eq!(writer.write(&data[..len]), Ok(len), "all of it is written");
                left -= len;
            }
        }));
        handles.push(start(&format!("reader/{id}"), move || {
            let mut random = Random(id as u64 + 99);
            let mut data = vec![0; 3000];
            loop {
                let len = 1 + random.below(3000) as usize;
                match reader.read(&mut data[..len]) {
                    Ok(0) | Err(_) => break,
                    Ok(count) => {
                        read.fetch_add(count, Ordering::Relaxed);
                        sum.fetch_add(data[..count].iter().map(|&byte| u64::from(byte)).sum(), Ordering::Relaxed);
                    }
                }
            }
        }));
    }
    drop((reader, writer));
    join_all(handles);
    expect(read.load(Ordering::Relaxed) == SIDES * BYTES, "bytes were lost or doubled")?;
    let expected: u64 = (1..=SIDES as u64).map(|byte| byte * BYTES as u64).sum();
    expect(sum.load(Ordering::Relaxed) == expected, "bytes were changed")
}

fn sockets() -> Outcome {
    const BYTES: usize = 1_000_000;
    let (here, there) = SocketPair::new();
    let echo = start("echo", move || {
        let mut data = vec![0; 5000];
        loop {
            match there.read(&mut data) {
                Ok(0) | Err(_) => break,
                Ok(count) => assert_eq!(there.write(&data[..count]), Ok(count), "the other end is there"),
            }
        }
    });
    let sender = here.clone();
    let writer = start("sender", move || {
        let data: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
        assert_eq!(sender.write(&data), Ok(BYTES), "all of it is written");
    });
    let mut data = vec![0; 7000];
    let mut at = 0;
    while at < BYTES {
        let count = here.read(&mut data).unwrap_or(0);
        expect(count != 0, "the stream ended early")?;
        expect(
            data[..count].iter().enumerate().all(|(i, &byte)| byte == ((at + i) % 251) as u8),
            "bytes were changed",
        )?;
        at += count;
    }
    writer.join();
    drop(here);
    echo.join();
    Ok(())
}

fn ends() -> Outcome {
    let (reader, writer) = Pipe::pair(CAPACITY);
    let waiting = start("reader", move || {
        assert_eq!(reader.read(&mut [0; 8]), Ok(0), "end of file");
    });
    timer::sleep_for(2_000_000);
    drop(writer);
    waiting.join();

    let (reader, writer) = Pipe::pair(PIPE_BUF);
    let waiting = start("writer", move || {
        assert_eq!(writer.write(&[0; 3 * PIPE_BUF]), Ok(PIPE_BUF), "the readers went away");
        assert!(writer.write(&[0]).is_err(), "nobody reads");
    });
    timer::sleep_for(2_000_000);
    drop(reader);
    waiting.join();
    Ok(())
}

/// Threads in a row, each joining the one before; threads that have ended before they are joined; handles that are dropped.
fn joins() -> Outcome {
    for round in 0..20 {
        let count = Arc::new(AtomicU64::new(0));
        let mut last: Option<JoinHandle> = None;
        for link in 0..40_u64 {
            let (before, count) = (last.take(), count.clone());
            let nice = Nice::new((link % 40) as i32 - 20).unwrap_or_default();
            let params = TaskParams { nice, ..TaskParams::default() };
            last = Some(start_with(SpawnOptions { name: "link", params, ..SpawnOptions::default() }, move || {
                if (link + round) % 3 == 0 {
                    thread::yield_now();
                }
                if let Some(before) = before {
                    before.join();
                }
                assert_eq!(count.fetch_add(1, Ordering::Relaxed), link, "joined in order");
            }));
        }
        if let Some(last) = last {
            last.join();
        }
        expect(count.load(Ordering::Relaxed) == 40, "a link is missing")?;
    }
    let early = start("early", || {});
    while !early.is_finished() {
        thread::yield_now();
    }
    early.join();
    let left = Arc::new(AtomicUsize::new(50));
    for _ in 0..50 {
        let left = left.clone();
        drop(start("dropped", move || {
            left.fetch_sub(1, Ordering::Release);
        }));
    }
    while left.load(Ordering::Acquire) != 0 {
        timer::sleep_for(1_000_000);
    }
    Ok(())
}

/// Sleeps end, and not early; waits with a deadline end by the wake-up or by the deadline.
fn timeouts() -> Outcome {
    let early = Arc::new(AtomicU64::new(0));
    let mut handles = Vec::new();
    for id in 0..24_u64 {
        let early = early.clone();
        handles.push(start(&format!("sleeper/{id}"), move || {
            let mut random = Random(id + 5);
            for _ in 0..12 {
                let ns = [0, 50_000, 700_000, 4_000_000, 9_000_000][random.below(5) as usize] + random.below(200_000);
                let due_ns = tsc::now_ns() + ns;
                timer::sleep_until(due_ns);
                if tsc::now_ns() < due_ns {
                    early.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
    }
    join_all(handles);
    expect(early.load(Ordering::Relaxed) == 0, "a sleep ended early")?;

    static NEVER: WaitQueue = WaitQueue::new();
    let due_ns = tsc::now_ns() + 3_000_000;
    let answer: Option<()> = NEVER.wait_until_deadline("nothing", SleepKind::Interruptible, due_ns, || None);
    expect(answer.is_none() && tsc::now_ns() >= due_ns, "a deadline was early")?;
    let answer: Option<()> = NEVER.wait_until_deadline("nothing", SleepKind::Interruptible, 1, || None);
    expect(answer.is_none(), "a deadline in the past must end the wait")?;

    static FLAG: AtomicBool = AtomicBool::new(false);
    let setter = start("setter", || {
        timer::sleep_for(2_000_000);
        FLAG.store(true, Ordering::Release);
        NEVER.wake_all();
    });
    let long_ns = tsc::now_ns() + 3_600_000_000_000;
    let answer = NEVER
        .wait_until_deadline("a flag", SleepKind::Interruptible, long_ns, || FLAG.load(Ordering::Acquire).then_some(7));
    setter.join();
    expect(answer == Some(7), "a wake-up before the deadline must end the wait")
}

/// Three threads that wait for each other. It ends in the deadlock report.
fn deadlock() -> Outcome {
    let (reader, writer) = Pipe::pair(CAPACITY);
    static NEVER: WaitQueue = WaitQueue::new();
    drop(start_with(SpawnOptions { name: "server", daemon: Daemon::Yes, ..SpawnOptions::default() }, || {
        NEVER.wait_until("requests", SleepKind::Interruptible, || None)
    }));
    let hungry = start("hungry", move || {
        let kept = writer.clone();
        timer::sleep_for(5_000_000);
        let _ = reader.read(&mut [0; 8]);
        drop((kept, writer));
    });
    hungry.join();
    Err("it went on")
}

/// A thread on the last CPU panics while the others sleep or idle. It ends in the panic report.
fn crash() -> Outcome {
    let last = CpuId(sched::cpus() as u32 - 1);
    let options = SpawnOptions { name: "crasher", affinity: Mask256::only(last), ..SpawnOptions::default() };
    start_with(options, || {
        timer::sleep_for(5_000_000);
        panic!("selftest: in a thread of the scheduler")
    })
    .join();
    Err("it went on")
}

/// A thread that computes without end does not keep another off its CPU, unless it objects to preemption.
fn preemption() -> Outcome {
    static STOP: AtomicBool = AtomicBool::new(false);
    static RAN: AtomicU64 = AtomicU64::new(0);
    for cpu in 0..sched::cpus() {
        STOP.store(false, Ordering::Relaxed);
        RAN.store(0, Ordering::Relaxed);
        let spin = move || {
            while !STOP.load(Ordering::Relaxed) {
                spin_loop();
            }
            assert_eq!(cpu_index(), cpu, "a pinned thread stays where it is");
        };
        let pinned = |name| SpawnOptions { name, affinity: only(cpu), ..SpawnOptions::default() };
        let spinner = start_with(pinned("spinner"), spin);
        let counter = start_with(pinned("counter"), || {
            for _ in 0..5 {
                RAN.fetch_add(1, Ordering::Relaxed);
                let until_ns = tsc::now_ns() + 3_000_000;
                while tsc::now_ns() < until_ns {
                    spin_loop();
                }
            }
            STOP.store(true, Ordering::Relaxed);
        });
        counter.join();
        spinner.join();
        expect(RAN.load(Ordering::Relaxed) == 5, "the counter did not run")?;
    }

    // With preemption off even a thread that was woken on this CPU has to wait.
    thread::set_affinity(&thread::current(), only(0)).map_err(|_| "the first CPU is online")?;
    RAN.store(0, Ordering::Relaxed);
    sched::preempt_disable();
    let params = TaskParams { nice: Nice::new(-20).unwrap_or_default(), ..TaskParams::default() };
    let eager =
        start_with(SpawnOptions { name: "eager", affinity: only(0), params, ..SpawnOptions::default() }, || {
            RAN.store(1, Ordering::Relaxed);
        });
    let until_ns = tsc::now_ns() + 20_000_000;
    let mut seen = 0;
    while tsc::now_ns() < until_ns {
        seen |= RAN.load(Ordering::Relaxed);
        spin_loop();
    }
    sched::preempt_enable();
    eager.join();
    thread::set_affinity(&thread::current(), Mask256::ALL).map_err(|_| "all CPUs are allowed")?;
    expect(seen == 0, "a thread was preempted although it objected")
}

/// Threads that run, sleep and talk while others and they themselves change where they may run.
fn affinity() -> Outcome {
    const STEPS: usize = 300;
    let cpus = sched::cpus();
    let stop = Arc::new(AtomicBool::new(false));
    let mut movers = Vec::new();
    let mut handles = Vec::new();
    let work = Arc::new(AtomicU64::new(0));
    for id in 0..cpus * 2 {
        let (stop, work) = (stop.clone(), work.clone());
        let (reader, writer) = Pipe::pair(64);
        let handle = start(&format!("moved/{id}"), move || {
            let mut random = Random(id as u64 + 3);
            while !stop.load(Ordering::Relaxed) {
                match random.below(8) {
                    0 => timer::sleep_for(100_000),
                    1 => thread::yield_now(),
                    _ => {
                        writer.write(&[1, 2, 3]).expect("the reader is mine");
                        let _ = reader.read(&mut [0; 3]);
                    }
                }
                work.fetch_add(1, Ordering::Relaxed);
            }
        });
        movers.push(handle.thread().clone());
        handles.push(handle);
    }
    let storms: Vec<JoinHandle> = (0..2_u64)
        .map(|id| {
            let movers = movers.clone();
            start(&format!("storm/{id}"), move || {
                let mut random = Random(id + 11);
                for _ in 0..STEPS {
                    let victim = &movers[random.below(movers.len() as u64) as usize];
                    let cpu = random.below(cpus as u64) as usize;
                    let mask = if random.below(4) == 0 { Mask256::ALL } else { only(cpu) };
                    thread::set_affinity(victim, mask).expect("the mask holds an online CPU");
                    if random.below(4) == 0 {
                        let nice = Nice::new(random.below(40) as i32 - 20).unwrap_or_default();
                        thread::set_nice(victim, nice).expect("a fair thread");
                    }
                    if random.below(3) == 0 {
                        timer::sleep_for(random.below(300_000));
                    }
                }
            })
        })
        .collect();
    let hopper = start("hopper", move || {
        for step in 0..STEPS {
            let cpu = step % cpus;
            thread::set_affinity(&thread::current(), only(cpu)).expect("the CPU is online");
            assert_eq!(cpu_index(), cpu, "a thread that moves itself has moved");
        }
    });
    hopper.join();
    join_all(storms);
    expect(
        thread::set_affinity(&thread::current(), only(255)).is_err(),
        "a mask without an online CPU must be refused",
    )?;
    stop.store(true, Ordering::Relaxed);
    join_all(handles);
    expect(work.load(Ordering::Relaxed) > 0, "nobody worked")
}

/// 10 000 short threads: none is lost, and stacks are used again.
fn exit_storm() -> Outcome {
    const THREADS: usize = 10_000;
    const AT_ONCE: usize = 50;
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let mapped_before = stack::count().mapped;
    let mut handles: Vec<JoinHandle> = Vec::new();
    for number in 0..THREADS {
        handles.push(start("short", move || {
            if number % 7 == 0 {
                thread::yield_now();
            }
            ENDED.fetch_add(1, Ordering::Relaxed);
            if number % 5 == 0 {
                thread::exit();
            }
        }));
        if handles.len() == AT_ONCE {
            handles.drain(..AT_ONCE / 2).for_each(JoinHandle::join);
        }
    }
    join_all(handles);
    expect(ENDED.load(Ordering::Relaxed) == THREADS, "a thread was lost")?;
    let count = stack::count();
    println!("selftest: {} stacks for {THREADS} threads", count.mapped - mapped_before);
    // Threads that have been joined but not left yet may hold one more per CPU, and one more each that waits there.
    expect(count.mapped - mapped_before <= 2 * AT_ONCE + 2 * sched::cpus(), "stacks were not used again")?;
    // The last ones are reaped by the CPUs that leave them.
    for _ in 0..1000 {
        let mut alive = 0;
        thread::for_each(|_| alive += 1);
        if alive == 1 {
            return Ok(());
        }
        timer::sleep_for(1_000_000);
    }
    Err("dead threads were not reaped")
}

/// Tokens for threads that wait with and without deadlines: each token is taken once, and nobody sleeps through one.
fn wake_storm() -> Outcome {
    const TAKERS: usize = 24;
    const GIVERS: u64 = 4;
    const EACH: u64 = 1500;
    static QUEUE: WaitQueue = WaitQueue::new();
    static TOKENS: AtomicU64 = AtomicU64::new(0);
    static OVER: AtomicBool = AtomicBool::new(false);
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    static GONE_BY: AtomicU64 = AtomicU64::new(0);
    // Some(true): a token; Some(false): it is over.
    let take = || {
        let took = TOKENS.fetch_update(Ordering::AcqRel, Ordering::Acquire, |tokens| tokens.checked_sub(1));
        match took {
            Ok(_) => Some(true),
            Err(_) => OVER.load(Ordering::Acquire).then_some(false),
        }
    };
    let takers: Vec<JoinHandle> = (0..TAKERS)
        .map(|id| {
            start(&format!("taker/{id}"), move || {
                let mut random = Random(id as u64 + 21);
                loop {
                    let answer = if id % 2 == 0 {
                        Some(QUEUE.wait_until("a token", SleepKind::Interruptible, take))
                    } else {
                        let deadline_ns = tsc::now_ns() + random.below(400_000);
                        QUEUE.wait_until_deadline("a token", SleepKind::Uninterruptible, deadline_ns, take)
                    };
                    match answer {
                        Some(true) => {
                            TAKEN.fetch_add(1, Ordering::Relaxed);
                        }
                        Some(false) => break,
                        None => {
                            GONE_BY.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            })
        })
        .collect();
    let givers: Vec<JoinHandle> = (0..GIVERS)
        .map(|id| {
            start(&format!("giver/{id}"), move || {
                let mut random = Random(id + 31);
                for _ in 0..EACH {
                    TOKENS.fetch_add(1, Ordering::AcqRel);
                    QUEUE.wake_one();
                    match random.below(16) {
                        0 => timer::sleep_for(random.below(200_000)),
                        1 => thread::yield_now(),
                        _ => {}
                    }
                }
            })
        })
        .collect();
    join_all(givers);
    OVER.store(true, Ordering::Release);
    QUEUE.wake_all();
    join_all(takers);
    println!("selftest: {} deadlines passed", GONE_BY.load(Ordering::Relaxed));
    expect(TAKEN.load(Ordering::Relaxed) == GIVERS * EACH, "tokens were lost")?;

    // No deadlines: every token needs its own wake-up, and the giver waits for the answer.
    static BALL: AtomicU64 = AtomicU64::new(0);
    const PLAYERS: u64 = 6;
    const PASSES: u64 = 1200;
    static COURT: [WaitQueue; PLAYERS as usize] = [const { WaitQueue::new() }; PLAYERS as usize];
    let players: Vec<JoinHandle> = (0..PLAYERS)
        .map(|me| {
            start(&format!("player/{me}"), move || {
                for turn in (me..PASSES).step_by(PLAYERS as usize) {
                    COURT[me as usize].wait_until("the ball", SleepKind::Interruptible, || {
                        (BALL.load(Ordering::Acquire) == turn).then_some(())
                    });
                    BALL.store(turn + 1, Ordering::Release);
                    COURT[((turn + 1) % PLAYERS) as usize].wake_one();
                }
            })
        })
        .collect();
    join_all(players);
    expect(BALL.load(Ordering::Relaxed) == PASSES, "the ball was lost")
}
