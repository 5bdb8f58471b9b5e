use super::*;
use proptest::prelude::*;

const ALL: Built = Built { schedstats: true, psi: true, psi_default_enabled: false, debug: false };
const DEBUG: Built = Built { debug: true, ..ALL };
const NONE: Built = Built { schedstats: false, psi: false, psi_default_enabled: false, debug: false };

fn read_with(line: &[u8], built: Built) -> (Settings<'_>, Vec<String>) {
    let mut lines = Vec::new();
    let settings = read(line, built, &mut |line| lines.push(line.to_string()));
    (settings, lines)
}

/// The one line that is said about `line`.
fn complaint(line: &str) -> String {
    let (_, lines) = read_with(line.as_bytes(), ALL);
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.into_iter().next().unwrap()
}

fn quiet(line: &str) -> Settings<'_> {
    let (settings, lines) = read_with(line.as_bytes(), ALL);
    assert_eq!(lines, [""; 0]);
    settings
}

#[test]
fn an_empty_line_gives_the_defaults() {
    let settings = quiet("");
    assert_eq!(settings, Settings::new(ALL));
    assert_eq!((settings.schedstats, settings.psi), (State::Off, State::Off));
    assert_eq!(settings.run, b"pipe,messaging");
    assert_eq!((settings.max_cpus, settings.dump, settings.end), (usize::MAX, None, End::PowerOff));
    assert_eq!((settings.algorithm, settings.features), (Algorithm::Eevdf, None));
}

#[test]
fn every_parameter_is_taken() {
    let settings = quiet(
        "schedstats=enable psi=1 maxcpus=3 run=pipe:loops=5,spin dump=/proc/schedstat end=halt sched-policy=eevdf \
         schedstat_version=17 selftest=heap",
    );
    assert_eq!((settings.schedstats, settings.psi), (State::On, State::On));
    assert_eq!(settings.max_cpus, 3);
    assert_eq!(settings.run, b"pipe:loops=5,spin");
    assert_eq!(settings.dump, Some(&b"/proc/schedstat"[..]));
    assert_eq!(settings.end, End::Halt);
    assert_eq!(settings.selftest, Some(&b"heap"[..]));
}

#[test]
fn the_default_of_psi_is_chosen_by_the_build() {
    let built = Built { psi_default_enabled: true, ..ALL };
    assert_eq!(read_with(b"", built).0.psi, State::On);
    assert_eq!(read_with(b"psi=off", built).0.psi, State::Off);
    assert_eq!(read_with(b"psi=maybe", built).0.psi, State::On);
}

#[test]
fn schedstats_takes_exactly_two_words() {
    for value in ["", "1", "on", "enabled", "ENABLE", "enable,", "disable1"] {
        let line = format!("schedstats=enable schedstats={value}");
        let (settings, lines) = read_with(line.as_bytes(), ALL);
        assert_eq!(settings.schedstats, State::On, "{value}");
        let expected = format!("schedstats={value} is not understood; accepted: enable or disable; used: enable");
        assert_eq!(lines, [format!("param: {expected}")]);
    }
}

#[test]
fn psi_takes_linux_booleans() {
    for (value, expected) in
        [("1", State::On), ("yellow", State::On), ("on", State::On), ("of", State::Off), ("D", State::Off)]
    {
        assert_eq!(quiet(&format!("psi={value}")).psi, expected, "{value}");
    }
    assert!(complaint("psi=o").starts_with("param: psi=o is not understood; accepted: a boolean"));
}

#[test]
fn the_last_good_value_wins() {
    assert_eq!(quiet("maxcpus=3 maxcpus=5").max_cpus, 5);
    let (settings, lines) = read_with(b"maxcpus=3 maxcpus=0", ALL);
    assert_eq!(settings.max_cpus, 3);
    assert_eq!(
        lines,
        ["param: maxcpus=0 is not understood; accepted: a decimal number from 1 to 65535; used: 3".to_string()]
    );
    assert!(complaint("maxcpus=99999999999999999999999").ends_with("used: all"));
}

#[test]
fn a_parameter_without_a_value_is_named() {
    assert_eq!(complaint("schedstats"), "param: schedstats has no value; accepted: enable or disable; used: disable");
}

#[test]
fn the_shell_comes_later() {
    let line = "param: end=shell is not in this kernel yet; accepted: poweroff, shell or halt; used: poweroff";
    assert_eq!(complaint("end=halt end=shell"), line);
    assert!(complaint("end=later").contains("end=later is not understood"));
}

#[test]
fn what_comes_later_is_said_in_one_line() {
    assert_eq!(
        complaint("latencytop=1 sysctl.kernel.sched_schedstats=1 trace-event=sched:* latencytop=2"),
        "param: not in this kernel yet, ignored: 'latencytop', 'sysctl.kernel.sched_schedstats', 'trace-event'"
    );
    assert!(complaint("schedstat_version=15").ends_with("used: 17"));
}

#[test]
fn either_algorithm_is_chosen_in_every_build() {
    for built in [ALL, NONE] {
        for (line, expected) in [
            ("", Algorithm::Eevdf),
            ("sched_policy=cfs", Algorithm::Cfs),
            ("sched-policy=cfs sched_policy=eevdf", Algorithm::Eevdf),
        ] {
            let (settings, lines) = read_with(line.as_bytes(), built);
            assert_eq!((settings.algorithm, lines.len()), (expected, 0), "{line}");
        }
    }
    for value in ["rr", "CFS", "cfs,eevdf", ""] {
        assert_eq!(
            complaint(&format!("sched_policy=cfs sched_policy={value}")),
            format!("param: sched_policy={value} is not understood; accepted: eevdf or cfs; used: cfs")
        );
    }
}

#[test]
fn the_idle_poll_takes_microseconds() {
    assert_eq!(read_with(b"", ALL).0.idle_poll_us, 20);
    assert_eq!(read_with(b"idle_poll=1000", ALL).0.idle_poll_us, 1000);
    for wrong in ["1001", "-1", "x", ""] {
        let line = format!("idle_poll=7 idle_poll={wrong}");
        let (settings, lines) = read_with(line.as_bytes(), ALL);
        assert_eq!(settings.idle_poll_us, 7, "{wrong}");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("accepted: a decimal number of microseconds from 0 to 1000"), "{lines:?}");
    }
}

#[test]
fn the_watch_takes_milliseconds() {
    assert_eq!(read_with(b"", DEBUG).0.watch, None);
    assert_eq!(read_with(b"watch=10", DEBUG).0.watch, Some(10));
    assert_eq!(read_with(b"watch=10 watch=off", DEBUG).0.watch, None);
    for wrong in ["0", "10001", "", "-1", "on", "10ms", "99999999999999999999"] {
        let line = format!("watch=7 watch={wrong}");
        let (settings, lines) = read_with(line.as_bytes(), DEBUG);
        assert_eq!(settings.watch, Some(7), "{wrong}");
        assert_eq!(
            lines,
            [format!(
                "param: watch={wrong} is not understood; accepted: off, or a decimal number of milliseconds from 1 to \
                 10000; used: 7"
            )]
        );
    }
    let (settings, lines) = read_with(b"watch=10", ALL);
    assert_eq!(settings.watch, None);
    assert_eq!(
        lines,
        ["param: not compiled into this kernel (see --build), ignored: 'watch'; sched_features and watch need debug"]
    );
}

#[test]
fn features_are_changed_only_in_a_debug_build() {
    let line = b"psi=1 sched-features=NEXT_BUDDY,, sched_features=X";
    let (settings, lines) = read_with(line, DEBUG);
    assert_eq!((settings.features, lines), (Some(&b"X"[..]), vec![]));
    assert_eq!(
        read_with(b"sched_features=A sched_features=", DEBUG).1,
        ["param: sched_features= is not understood; accepted: a comma list of NAME or NO_NAME, with names as in \
          /sys/kernel/debug/sched/features; used: A"]
    );
    assert!(read_with(b"sched_features", DEBUG).1[0].ends_with("; used: the built-in ones"));

    let (settings, lines) = read_with(line, NONE);
    assert_eq!(settings.features, None);
    let expected = "param: not compiled into this kernel (see --build), ignored: 'psi', 'sched-features', \
                    'sched_features'; sched_features and watch need debug";
    assert_eq!(lines, [expected]);
}

#[test]
fn unknown_keys_are_one_line() {
    assert_eq!(
        complaint("console=ttyS0 root=/dev/vda quiet console=x"),
        "param: unknown, ignored: 'console', 'root', 'quiet'"
    );
    let long = "x".repeat(500);
    assert_eq!(complaint(&long), format!("param: unknown, ignored: '{}...'", "x".repeat(48)));
}

#[test]
fn hooks_that_are_not_compiled_in_are_one_line() {
    let (settings, lines) = read_with(b"schedstats=enable psi=1 psi=wrong", NONE);
    assert_eq!(lines, ["param: not compiled into this kernel (see --build), ignored: 'schedstats', 'psi'".to_string()]);
    assert_eq!((settings.schedstats, settings.psi), (State::Off, State::Off));
    assert_eq!(settings.hook(Hook::Psi, NONE), HookState::NotBuilt);
    assert_eq!(settings.hook(Hook::Psi, ALL), HookState::Off);
}

#[test]
fn nothing_after_the_dashes_is_ours() {
    assert_eq!(quiet("maxcpus=2 -- maxcpus=3 unknown psi=nonsense").max_cpus, 2);
}

#[test]
fn long_values_are_cut() {
    let line = complaint(&format!("schedstats={}", "\u{1}".repeat(1500)));
    assert!(line.contains(&format!("schedstats={}... is not", "\\x01".repeat(48))), "{line}");
}

#[test]
fn the_build_list_is_in_its_normal_form() {
    assert_eq!(ALL.to_string(), "all");
    assert_eq!(NONE.to_string(), "none");
    assert_eq!(Built { psi: true, psi_default_enabled: true, ..NONE }.to_string(), "psi,psi-default-enabled");
    assert_eq!(Built { schedstats: true, ..NONE }.to_string(), "schedstats");
    assert_eq!(DEBUG.to_string(), "all,debug");
    assert_eq!(Built { debug: true, ..NONE }.to_string(), "none,debug");
    assert_eq!(Built { psi_default_enabled: true, ..DEBUG }.to_string(), "all,debug,psi-default-enabled");
}

#[test]
fn the_table_says_what_it_does() {
    for (at, row) in TABLE.iter().enumerate() {
        assert!(row.what.ends_with('.') && !row.accepts.is_empty() && !row.default.is_empty(), "{}", row.name);
        assert!(TABLE[..at].iter().all(|other| other.name != row.name), "{} is there twice", row.name);
        assert!(NOT_YET.iter().all(|name| *name != row.name));
    }
}

proptest! {
    #[test]
    fn no_line_panics_or_floods(line in proptest::collection::vec(any::<u8>(), 0..2048)) {
        let (settings, lines) = read_with(&line, ALL);
        prop_assert!(!settings.run.is_empty() && settings.max_cpus > 0);
        for said in lines {
            prop_assert!(!said.contains('\n') && said.len() < 16 * 1024);
        }
    }

    #[test]
    fn no_value_panics_or_floods(row in 0..TABLE.len(), value in proptest::collection::vec(any::<u8>(), 0..300)) {
        let line = [TABLE[row].name.as_bytes(), b"=\"", &value, b"\""].concat();
        for said in read_with(&line, DEBUG).1 {
            prop_assert!(!said.contains('\n') && said.len() < 2048, "{said}");
        }
    }
}
