//! Rules that can be taken out while the scheduler runs, and what is said about them.

use sched_core::{Feature, FeatureError, text};

use crate::machine::{Machine, machine};

fn line(m: &Machine) -> String {
    let mut line = String::new();
    text::features::write(&mut line, |feature| m.feature(feature)).unwrap();
    line
}

#[test]
fn every_feature_is_written_and_read_back() {
    let m = machine(3);
    let before = line(&m);
    for &feature in Feature::ALL {
        for on in [!feature.default_on(), feature.default_on()] {
            let word = format!("{}{}\n", if on { "" } else { "NO_" }, feature.name());
            assert_eq!(m.write_features(word.as_bytes()), Ok(word.len()));
            assert_eq!(m.feature(feature), on);
        }
        assert_eq!(line(&m), before);
    }
}

#[test]
fn each_word_of_the_line_is_a_write_that_changes_nothing() {
    let m = machine(1);
    let before = line(&m);
    for word in before.split_whitespace() {
        assert_eq!(m.write_features(word.as_bytes()), Ok(word.len()));
    }
    assert_eq!(line(&m), before);
    assert!(before.ends_with(" \n"));
}

#[test]
fn a_write_that_is_refused_changes_nothing() {
    let m = machine(1);
    let before = line(&m);
    for (written, error) in [
        (&b"NO_NO_PLACE_LAG\n"[..], FeatureError::Unknown),
        (b"no_place_lag\n", FeatureError::Unknown),
        (b"", FeatureError::Empty),
        (b" \n", FeatureError::Empty),
        (&[b'X'; 64], FeatureError::TooLong),
    ] {
        assert_eq!(m.write_features(written), Err(error));
    }
    assert_eq!(line(&m), before);
}

#[test]
fn a_change_holds_on_every_cpu() {
    // Linux before 5.10, built for debugging but without patched branches, changed what it reported and not what it did.
    let m = machine(2);
    m.set_feature(Feature::WakeupPreemption, false).unwrap();
    for cpu in [0, 1] {
        let here = m.cpu(cpu);
        let sleeper = here.spawn_on("sleeper", &[cpu]);
        here.leave_interrupt();
        assert!(here.block());
        let _runs = here.spawn_on("runs", &[cpu]);
        here.leave_interrupt();
        here.wake(&sleeper);
        assert!(!here.need_resched(), "CPU {cpu}");
    }
}
