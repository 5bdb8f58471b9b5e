//! # What it is
//! What stands around the harness: it looks for the tools, starts the count, and prints its files as two tables.
//!
//! # How it works
//! The program is started three ways: by the user, who gets the tables; by itself, to become the harness with nothing on its
//! standard output; and by the harness, under valgrind, for one figure.
//! Callgrind leaves one file a figure; its lines `events:` and `totals:` are all that is read.
//!
//! # Invariants
//! 1. Without its tools it says in one line what is missing and how it comes here, and fails.
//! 2. A figure that is missing is a failure.
//!
//! # Cost
//! Some two minutes, most of it for the deepest queues.

use std::{
    collections::HashMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio, exit},
};

use super::{DEPTHS, ENTITIES, OPERATIONS, ring};

/// Tells the program that it is to be the harness.
const HARNESS: &str = "SCHED_CORE_BENCH_HARNESS";
const RUNNER: &str = "gungraun-runner";

pub fn main(harness: fn()) {
    let inner = env::args().nth(1).is_some_and(|argument| argument == "--gungraun-run");
    if inner || env::var_os(HARNESS).is_some() {
        return harness();
    }
    if let Err(reason) = count().and_then(|home| print(&home)) {
        eprintln!("{reason}");
        exit(2);
    }
}

/// Where cargo installs programs, which need not lie on the path.
fn path() -> std::ffi::OsString {
    let cargo =
        env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| env::home_dir().map(|home| home.join(".cargo")));
    let path = env::var_os("PATH").unwrap_or_default();
    env::join_paths(env::split_paths(&path).chain(cargo.map(|home| home.join("bin")))).unwrap_or(path)
}

fn count() -> Result<PathBuf, String> {
    let path = path();
    let missing: Vec<_> = ["valgrind", RUNNER]
        .into_iter()
        .filter(|program| !env::split_paths(&path).any(|folder| folder.join(program).is_file()))
        .collect();
    if !missing.is_empty() {
        return Err(format!(
            "cannot count: {} missing; to install: cargo qemu setup --bench",
            missing.join(" and ") + if missing.len() > 1 { " are" } else { " is" }
        ));
    }
    let program = env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    // The figures lie beside the target folder's profile folders.
    let home = program.ancestors().nth(3).ok_or("this program lies in no target folder")?.join("counts");
    let _ = fs::remove_dir_all(&home);
    eprintln!("counting under valgrind, some two minutes ...");
    let output = Command::new(program)
        .arg("--bench")
        .env(HARNESS, "1")
        .env("PATH", &path)
        .env("GUNGRAUN_HOME", &home)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("cannot start the count: {error}"))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        return Err(format!("the count failed: {}\n{}", output.status, String::from_utf8_lossy(&said)));
    }
    Ok(home)
}

/// The events of one figure, by name.
type Events = HashMap<String, u64>;

fn events(text: &str) -> Option<Events> {
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let totals = line("totals:").or_else(|| line("summary:"))?.split_whitespace().map(|n| n.parse().unwrap_or(0));
    Some(line("events:")?.split_whitespace().map(str::to_owned).zip(totals).collect())
}

/// The figure of the `index`th argument of the function `name`, wherever below `folder` it lies.
fn figure(folder: &Path, name: &str, set: &str, index: usize) -> Result<Events, String> {
    let wanted = format!("{name}.{set}_{index}");
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|file| {
                let file = file.to_string_lossy();
                file.starts_with("callgrind.") && file.contains(&wanted) && file.ends_with(".out")
            }) {
                let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
                return events(&text).ok_or(format!("no totals in {}", path.display()));
            }
        }
    }
    Err(format!("no figure for {wanted} below {}", folder.display()))
}

/// The ordered sets, by the function that is counted.
const LINES: [(&str, &str); 3] = [
    ("bare", "the timeline: one augmented tree"),
    ("two_trees", "two trees"),
    ("three_sums", "one augmented tree, slices too"),
];
/// Whole queues.
const QUEUES: [(&str, &str); 3] =
    [("fair", "the whole fair queue"), ("map", "BTreeMap<(u64, u64), _>"), ("ax", "axsched's CFS")];

fn print(home: &Path) -> Result<(), String> {
    println!("Table 1. Instructions of an operation, by the entities that wait");
    for (operation, what) in [
        ("requeue", "pick, put and requeue of one"),
        ("cycle", "one joins, the best leaves"),
        ("visit", "one joins, a pick, the same one leaves"),
    ] {
        println!("\n  {what:<42}{}", DEPTHS.map(|depth| format!("{depth:>9}")).concat());
        for (row, name) in LINES.iter().chain(&QUEUES) {
            let mut line = String::new();
            for index in 0..DEPTHS.len() {
                let events = figure(home, row, operation, index)?;
                line += &format!("{:>9}", events.get("Ir").copied().unwrap_or(0) / OPERATIONS);
            }
            println!("  {name:<42}{line}");
        }
    }
    let title = "the one pick when V has reached everybody";
    println!("\n  {title:<42}{}", DEPTHS.map(|depth| format!("{depth:>9}")).concat());
    for (row, name) in &LINES {
        let mut line = String::new();
        for index in 0..DEPTHS.len() {
            let events = figure(home, &format!("{row}_crowd"), "pick", index)?;
            line += &format!("{:>9}", events.get("Ir").copied().unwrap_or(0));
        }
        println!("  {name:<42}{line}");
    }
    println!(
        "\nTable 2. A wake-up, a sleep and a pick among many, by the layout of an entity (32 KiB L1, simulated)\n"
    );
    println!("  {:>9}  {:<20}{:>14}{:>14}", "entities", "layout", "instructions", "L1 misses");
    for (index, entities) in ENTITIES.into_iter().enumerate() {
        for (row, name) in [("layout_lines", "by cache line"), ("layout_naive", "as first thought of")] {
            let events = figure(home, row, "at", index)?;
            let steps = ring::steps(entities) as f64;
            let count = |names: &[&str]| {
                names.iter().map(|name| events.get(*name).copied().unwrap_or(0) as f64).sum::<f64>() / steps
            };
            let (instructions, misses) = (count(&["Ir"]), count(&["D1mr", "D1mw"]));
            println!("  {entities:>9}  {name:<20}{instructions:>14.0}{misses:>14.2}");
        }
    }
    Ok(())
}
