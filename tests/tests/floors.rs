//! `sched-core` has floors: a module imports only from its own floor or from floors below.
//! The list here is the one in ARCHITECTURE.md, which is checked too.

use std::{fs, path::Path};

/// From the top down. Modules on one line are one floor.
const FLOORS: &[&[&str]] = &[
    &["internals", "text"],
    &["scheduler"],
    &["cpu"],
    &["queue"],
    &["load", "policy"],
    &["members"],
    &["config", "task"],
    &["stats"],
    &["timeline"],
    &["entity"],
    &["params"],
    &["pelt"],
    &["weight"],
    &["vtime"],
    &["topology"],
    &["mask"],
    &["features", "gate", "sync"],
    &["platform", "token"],
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace")
}

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

/// The first path segments after `crate::` in a source text, wherever they stand.
fn imports(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices("crate::") {
        // `$crate::` in a macro is the public face of the crate, not an import.
        if source[..at].ends_with('$') {
            continue;
        }
        let rest = &source[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            // Segments at depth 1 of the group.
            let (mut depth, mut segment) = (1, String::new());
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                if depth == 0 || (depth == 1 && c == ',') {
                    let first = segment.trim().split("::").next().unwrap_or_default().trim();
                    if !first.is_empty() {
                        found.push(first.to_owned());
                    }
                    segment.clear();
                    if depth == 0 {
                        break;
                    }
                } else {
                    segment.push(c);
                }
            }
        } else {
            found.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    found
}

/// Code without comments: rustdoc links upwards are welcome.
fn code(source: &str) -> String {
    source.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn sources(dir: &Path, module: &str, into: &mut Vec<(String, String)>) {
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let name = if module.is_empty() { stem } else { module.to_owned() };
        if path.is_dir() {
            sources(&path, &name, into);
        } else if path.extension().is_some_and(|e| e == "rs") && name != "lib" {
            into.push((name, code(&fs::read_to_string(&path).unwrap())));
        }
    }
}

#[test]
fn imports_go_down() {
    let mut files = Vec::new();
    sources(&root().join("sched-core/src"), "", &mut files);
    assert!(files.len() > 15, "found only {} files", files.len());
    let mut wrong = Vec::new();
    for (module, source) in &files {
        let Some(mine) = floor(module) else {
            wrong.push(format!("{module} is on no floor: add it to the list here and in ARCHITECTURE.md"));
            continue;
        };
        // Tests inside a module may use anything.
        let source = source.split("#[cfg(test)]\nmod tests").next().unwrap();
        for import in imports(source) {
            if let Some(theirs) = floor(&import)
                && theirs < mine
            {
                wrong.push(format!("{module} imports {import} from above"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn architecture_lists_the_same_floors() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let listed: Vec<Vec<&str>> = text
        .lines()
        .skip_while(|line| !line.starts_with("<!-- floors -->"))
        .skip(2)
        .take_while(|line| !line.starts_with("```"))
        .map(|line| line[..line.find("  ").unwrap_or(line.len())].split(' ').collect())
        .collect();
    assert_eq!(listed, FLOORS);
}

#[test]
fn the_scan_finds_what_it_looks_for() {
    assert_eq!(imports("use crate::{\n a::{b, c},\n d,\n e::f,\n};"), ["a", "d", "e"]);
    assert_eq!(imports("fn f(x: crate::g::H) { $crate::no() }"), ["g"]);
}
