//! Tests of the command line: stories first, then every short line there is.

use super::*;

type Pair<'a> = (&'a str, Option<&'a str>);

fn split(line: &str) -> Vec<(String, Option<String>)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    params(line.as_bytes()).map(|p| (text(p.key.0), p.value.map(text))).collect()
}

fn assert_split(line: &str, expected: &[Pair<'_>]) {
    let expected: Vec<_> = expected.iter().map(|&(k, v)| (k.to_owned(), v.map(str::to_owned))).collect();
    assert_eq!(split(line), expected, "{line:?}");
}

#[test]
fn blanks_separate_and_the_first_equals_sign_splits() {
    assert_split("", &[]);
    assert_split(" \t\n\x0b ", &[]);
    assert_split(
        "  schedstats=enable\tpsi=1\nquiet ",
        &[("schedstats", Some("enable")), ("psi", Some("1")), ("quiet", None)],
    );
    assert_split("run=pipe:loops=5", &[("run", Some("pipe:loops=5"))]);
    assert_split("a= b", &[("a", Some("")), ("b", None)]);
    assert_split("=a ==b", &[("=a", None), ("=", Some("b"))]);
}

#[test]
fn order_is_kept_so_that_the_last_one_can_win() {
    assert_split("a=1 b a=2", &[("a", Some("1")), ("b", None), ("a", Some("2"))]);
}

#[test]
fn quotes_protect_blanks() {
    assert_split("a=\"b c\" d", &[("a", Some("b c")), ("d", None)]);
    assert_split("\"a=b c\" d", &[("a", Some("b c")), ("d", None)]);
    assert_split("\"a b\" c", &[("a b", None), ("c", None)]);
    assert_split("a=b\" \"c", &[("a", Some("b\" \"c"))]);
    assert_split("a=\"b c", &[("a", Some("b c"))]);
    assert_split("a=\" b=c", &[("a", Some(" b=c"))]);
    assert_split("a=\"\" \"\" b=\"", &[("a", Some("")), ("b", Some(""))]);
    assert_split("a=\"b --\" c", &[("a", Some("b --")), ("c", None)]);
}

#[test]
fn after_two_dashes_nothing_is_ours() {
    assert_split("a -- b=c", &[("a", None)]);
    assert_split("--", &[]);
    assert_split("--a -- b", &[("--a", None)]);
    assert_split("a=-- b", &[("a", Some("--")), ("b", None)]);
    assert_split("--=1 b", &[("--", Some("1")), ("b", None)]);
    let mut line = params(b"-- a b");
    assert_eq!(line.next(), None);
    assert_eq!(line.next(), None);
}

#[test]
fn dashes_and_underscores_are_the_same_in_keys_only() {
    let key = Key(b"sched-policy_x");
    assert!(key.is("sched_policy-x"));
    assert!(!key.is("sched_policy"));
    assert!(!key.is("sched_policy_xy"));
    assert_eq!(Key(b"sysctl.kernel.a-b").strip_prefix("sysctl."), Some(Key(b"kernel.a-b")));
    assert_eq!(Key(b"sys").strip_prefix("sysctl."), None);
    assert_split("a_b=a-b", &[("a_b", Some("a-b"))]);
}

#[test]
fn any_byte_can_be_given_and_printed() {
    let all: Vec<u8> = (0..=255).collect();
    for param in params(&all) {
        assert!(!format!("{}{}", param.key, Text(param.value.unwrap_or_default())).is_empty());
    }
    assert_eq!(Text(b"a\"\xff\n ~").to_string(), "a\"\\xff\\x0a ~");
}

#[test]
fn booleans_are_read_by_one_or_two_characters() {
    for yes in ["1", "y", "Y", "t", "true", "enable", "on", "ON", "oN", "yellow", "10"] {
        assert_eq!(parse_bool(yes.as_bytes()), Ok(true), "{yes}");
    }
    for no in ["0", "n", "No", "f", "F", "disable", "off", "of", "OF", "01"] {
        assert_eq!(parse_bool(no.as_bytes()), Ok(false), "{no}");
    }
    for wrong in ["", "o", "ox", "2", "-1", " 1", "\"1", "maybe"] {
        assert_eq!(parse_bool(wrong.as_bytes()), Err(ValueError::NotBoolean), "{wrong}");
    }
}

#[test]
fn numbers_are_decimal_and_bounded() {
    assert_eq!(parse_unsigned(b"0", 0..=u64::MAX), Ok(0));
    assert_eq!(parse_unsigned(b"007", 1..=7), Ok(7));
    assert_eq!(parse_unsigned(b"18446744073709551615", 0..=u64::MAX), Ok(u64::MAX));
    for wrong in ["", "-1", "+1", "1 ", "0x1", "1_000", "1.0", "18446744073709551616", "99999999999999999999999"] {
        assert_eq!(
            parse_unsigned(wrong.as_bytes(), 0..=u64::MAX),
            Err(ValueError::NotInRange { min: 0, max: u64::MAX }),
            "{wrong}"
        );
    }
    assert_eq!(parse_unsigned(b"8", 1..=7), Err(ValueError::NotInRange { min: 1, max: 7 }));
    assert_eq!(parse_unsigned(b"0", 1..=7), Err(ValueError::NotInRange { min: 1, max: 7 }));
}

#[test]
fn words_are_read_whole() {
    const WORDS: &[&str] = &["enable", "disable"];
    assert_eq!(parse_word(b"disable", WORDS), Ok(1));
    for wrong in ["", "dis", "Disable", "disabled"] {
        assert_eq!(parse_word(wrong.as_bytes(), WORDS), Err(ValueError::NotOneOf(WORDS)));
    }
}

#[test]
fn errors_say_what_is_accepted() {
    assert_eq!(ValueError::NotInRange { min: 0, max: 2 }.to_string(), "a decimal number from 0 to 2 is accepted");
    assert_eq!(ValueError::NotOneOf(&["15", "16", "17"]).to_string(), "15, 16 or 17 is accepted");
    assert_eq!(ValueError::NotOneOf(&["off"]).to_string(), "off is accepted");
    assert!(ValueError::NotBoolean.to_string().contains("off"));
}

/// Calls `f` with every line over `alphabet` of at most `longest` bytes.
fn every_line(alphabet: &[u8], longest: usize, f: &mut impl FnMut(&[u8])) {
    fn grow(line: &mut Vec<u8>, alphabet: &[u8], left: usize, f: &mut impl FnMut(&[u8])) {
        f(line);
        if left > 0 {
            for &byte in alphabet {
                line.push(byte);
                grow(line, alphabet, left - 1, f);
                line.pop();
            }
        }
    }
    grow(&mut Vec::new(), alphabet, longest, f);
}

#[test]
fn every_short_line_without_quotes_agrees_with_the_plain_rule() {
    let mut lines = 0;
    every_line(b" =-a", 8, &mut |line| {
        lines += 1;
        let line = core::str::from_utf8(line).unwrap();
        let expected: Vec<Pair<'_>> = line
            .split_whitespace()
            .take_while(|&token| token != "--")
            .map(|token| {
                let first = token.chars().next().unwrap().len_utf8();
                match token[first..].find('=') {
                    Some(at) => (&token[..first + at], Some(&token[first + at + 1..])),
                    None => (token, None),
                }
            })
            .collect();
        assert_split(line, &expected);
    });
    assert_eq!(lines, (0..=8).map(|n| 4usize.pow(n)).sum::<usize>());
}

#[test]
fn every_short_line_with_quotes_keeps_the_rules() {
    every_line(b" \"=-a", 8, &mut |line| {
        let base = line.as_ptr() as usize;
        let mut in_token = vec![false; line.len()];
        let mut end = 0;
        for param in params(line) {
            assert!(!param.key.0.is_empty());
            for part in [Some(param.key.0), param.value].into_iter().flatten() {
                let start = part.as_ptr() as usize - base;
                assert!(start >= end, "parts come in order");
                end = start + part.len();
                in_token[start..end].fill(true);
            }
        }
        let has_end_mark = line.windows(2).any(|pair| pair == b"--");
        let mut is_quoted = false;
        for (at, &byte) in line.iter().enumerate() {
            match byte {
                b'"' => is_quoted = !is_quoted,
                // Only a quoted blank can be part of a parameter.
                b' ' => assert!(!in_token[at] || is_quoted, "{line:?} at {at}"),
                // No letter is lost, unless an end mark may stand before it.
                b'a' => assert!(in_token[at] || has_end_mark, "{line:?} at {at}"),
                _ => {}
            }
        }
    });
}
