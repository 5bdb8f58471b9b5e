//! Rules of the core broken on purpose, one at a time, in a copy; for each, the test that must fail then.
//! A break that no longer applies to the source fails, too.
//!
//! `cargo qemu test --only broken`, or `cargo test -p tests --test broken -- --ignored`: a few minutes, for each break compiles the core.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

struct Break {
    /// The rule, as a sentence that is no longer true.
    what: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
    /// Test target and test.
    caught_by: (&'static str, &'static str),
}

const BREAKS: &[Break] = &[
    Break {
        what: "a request is set before its kick",
        file: "src/scheduler/place.rs",
        from: "let kick = queue.push_wakee(task) && queue.request_to_look();",
        to: "let first = queue.push_wakee(task);
                self.platform.kick(cpu);
                let kick = first && queue.request_to_look() && cpu == here.cpu;",
        caught_by: ("races", "idle::a_kick_finds_its_request_and_an_idle_cpu_its_task"),
    },
    Break {
        what: "a task that a CPU is still leaving is placed by that CPU",
        file: "src/scheduler/place.rs",
        from: "task.words.on_cpu.load(Acquire) == on_cpu::ON",
        to: "task.words.on_cpu.load(Acquire) == u64::MAX",
        caught_by: ("races", "handover::a_task_that_is_woken_while_it_is_left_is_continued_by_one_cpu"),
    },
    Break {
        what: "a CPU that looked around before it idles looks at its own queue again",
        file: "src/scheduler.rs",
        from: "let next = Self::pick(&mut inner, now);
        (inner, now, next)",
        to: "let next = inner.idle.unwrap_or_else(|| unreachable_in_release());
        (inner, now, next)",
        caught_by: ("races", "idle::a_task_that_comes_while_a_cpu_goes_idle_is_found"),
    },
    Break {
        what: "a sleeper's mark is there before it looks at its condition",
        file: "src/scheduler.rs",
        from: "current.words.state.store(prepared, Relaxed);
            // Pairs with the fence in `wake`: either the waker sees the mark, or the caller sees the condition.
            C::Sync::fence(SeqCst);",
        to: "current.words.state.store(prepared, Relaxed);",
        caught_by: ("races", "sleeping::a_wake_up_is_never_lost_between_check_and_block"),
    },
    Break {
        what: "a waker's condition is there before it looks for a mark",
        file: "src/scheduler.rs",
        from: "// Pairs with the fence in `prepare`.
        C::Sync::fence(SeqCst);",
        to: "",
        caught_by: ("races", "sleeping::a_wake_up_is_never_lost_between_check_and_block"),
    },
    Break {
        what: "what a CPU did on a task's stack is seen by the next one",
        file: "src/scheduler.rs",
        from: "prev.words.on_cpu.swap(on_cpu::OFF, AcqRel)",
        to: "prev.words.on_cpu.swap(on_cpu::OFF, Relaxed)",
        caught_by: ("races", "handover::"),
    },
    Break {
        what: "a placement names its queue before it reads the parameters",
        file: "src/scheduler/place.rs",
        from: "task.words.cpu.store(u64::from(cpu.0), SeqCst);
                C::Sync::fence(SeqCst);",
        to: "task.words.cpu.store(u64::from(cpu.0), Relaxed);",
        caught_by: ("races", "params::a_nice_value_set_while_a_task_wakes_elsewhere_counts"),
    },
    Break {
        what: "a new mask is there before its task is looked for",
        file: "src/scheduler.rs",
        from: "task.mask.store(mask);
        C::Sync::fence(SeqCst);",
        to: "task.mask.store(mask);",
        caught_by: ("races", "params::a_task_that_wakes_elsewhere_ends_up_where_the_last_mask_allows_it"),
    },
    Break {
        what: "a mask is looked at again under the lock of the queue that was chosen",
        file: "src/scheduler/place.rs",
        from: "(task.mask.contains(cpu) || !self.any_online(&task.mask.load()));",
        to: "(cpu.0 != u32::MAX || !self.any_online(&task.mask.load()));",
        caught_by: ("races", "balance::a_task_is_pulled_only_where_its_mask_allows"),
    },
    Break {
        what: "a CPU answers its request before it looks at its wake list",
        file: "src/scheduler.rs",
        from: "here.queue.clear_request();
        if here.queue.has_wakees() {
            (inner, now) = self.take_wakees_in(here, inner);
        }",
        to: "if here.queue.has_wakees() {
            (inner, now) = self.take_wakees_in(here, inner);
        }
        here.queue.clear_request();",
        caught_by: ("races", "wake_list::"),
    },
    Break {
        what: "who finds a request there already still shows what it pushed to who answers that",
        file: "src/scheduler/place.rs",
        from: "queue.push_wakee(task) && queue.request_to_look()",
        to: "queue.push_wakee(task) && queue.request()",
        caught_by: ("races", "wake_list::who_is_woken_while_the_list_is_taken_in_is_taken_in_too"),
    },
    Break {
        what: "a waker whose wakee came too late for a CPU that went offline passes it on",
        file: "src/scheduler/place.rs",
        from: "if !self.is_online(cpu) {
                    // It went",
        to: "if cpu.0 == u32::MAX {
                    // It went",
        caught_by: ("races", "hotplug::who_is_woken_for_a_cpu_that_goes_offline_is_taken_in_elsewhere"),
    },
    Break {
        what: "a placement sees under the lock that a CPU has left",
        file: "src/scheduler/place.rs",
        from: "let usable = self.is_online(cpu) && (",
        to: "let usable = cpu.0 != u32::MAX && (",
        caught_by: ("races", "hotplug::who_is_born_on_a_cpu_that_goes_offline_moves"),
    },
    Break {
        what: "a CPU that stops polling looks once more before it halts",
        file: "src/cpu.rs",
        from: "Ok(_) => return seen & request::ASKED == 0,",
        to: "Ok(_) => return true,",
        caught_by: ("races", "wake_list::a_cpu_that_polls_and_then_halts_misses_nobody"),
    },
    Break {
        what: "a task that a CPU is still leaving is not moved",
        file: "src/scheduler/balance.rs",
        from: "task.mask.contains(to) && task.words.on_cpu.load(Acquire) == on_cpu::OFF",
        to: "task.mask.contains(to) && task.words.on_cpu.load(Acquire) != u64::MAX",
        caught_by: ("front_door", "balance::a_task_that_runs_or_is_still_being_left_is_not_moved"),
    },
    Break {
        what: "a decision answers the request",
        file: "src/scheduler.rs",
        from: "let mut now = inner.advance(self.platform.now(here.cpu));
        here.queue.clear_request();",
        to: "let mut now = inner.advance(self.platform.now(here.cpu));",
        caught_by: ("front_door", "requests::"),
    },
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if !from.is_dir() {
            fs::copy(&from, &to).expect("a copy");
        } else if entry.file_name() != "fuzz" && entry.file_name() != "target" {
            copy(&from, &to);
        }
    }
}

/// A workspace with nothing but a copy of the core.
fn workshop() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let workshop = target.join("broken");
    _ = fs::remove_dir_all(workshop.join("sched-core"));
    copy(&root().join("sched-core"), &workshop.join("sched-core"));
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace");
    let keep = |line: &&str| !["members", "default-members", "exclude"].iter().any(|key| line.starts_with(key));
    let rest: Vec<&str> = manifest.lines().filter(keep).collect();
    let members = "resolver = \"3\"\nmembers = [\"sched-core\", \"sched-core/benches/naive\"]";
    fs::write(workshop.join("Cargo.toml"), rest.join("\n").replace("resolver = \"3\"", members)).expect("written");
    fs::copy(root().join("Cargo.lock"), workshop.join("Cargo.lock")).expect("a copy");
    workshop
}

/// Whether the test passes, and what it printed.
fn passes(workshop: &Path, (target, test): (&str, &str)) -> (bool, String) {
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(workshop)
        .env("CARGO_TARGET_DIR", workshop.join("target"))
        .args(["test", "--quiet", "--package", "sched-core", "--test", target, "--", test])
        .output()
        .expect("cargo runs");
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&printed).into_owned())
}

#[test]
#[ignore = "compiles the core once for each break"]
fn every_broken_rule_is_caught() {
    let workshop = workshop();
    let mut escaped = Vec::new();
    for broken in BREAKS {
        let file = workshop.join("sched-core").join(broken.file);
        let sound = fs::read_to_string(&file).expect("a source");
        assert_eq!(sound.matches(broken.from).count(), 1, "{}: the break no longer applies", broken.what);
        let (target, test) = broken.caught_by;
        fs::write(&file, sound.replace(broken.from, broken.to)).expect("written");
        let (passed, printed) = passes(&workshop, broken.caught_by);
        fs::write(&file, sound).expect("written");
        let compiled = printed.contains("test result: ");
        println!("not true that {}: {}", broken.what, if passed { "NOT CAUGHT" } else { "caught" });
        if passed || !compiled {
            escaped.push(format!("{} ({target} {test}): {printed}", broken.what));
        }
    }
    for broken in BREAKS {
        let (passed, printed) = passes(&workshop, broken.caught_by);
        assert!(passed, "the sound core fails {:?}: {printed}", broken.caught_by);
        assert!(!printed.contains("running 0 tests"), "{:?} is no test", broken.caught_by);
    }
    assert!(escaped.is_empty(), "not caught:\n{}", escaped.join("\n"));
}
