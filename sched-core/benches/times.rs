//! The loads of `counts` in time. Rows take turns in one run, so that what else the machine does falls on all of them;
//! a figure is the median of the rounds, and what counts is the ratio.

mod lines;

use std::time::Instant;

use lines::{Ax, Bare, Fair, Load, Map, ThreeSums, Timeline, TwoTrees};

const ROUNDS: usize = 41;
const OPERATIONS: u32 = 2000;

fn timer<L: Load + 'static>(depth: usize) -> Box<dyn FnMut(bool) -> f64> {
    let mut load = L::new(depth);
    (0..2 * depth).for_each(|_| load.requeue());
    Box::new(move |cycles| {
        let start = Instant::now();
        for _ in 0..OPERATIONS {
            if cycles { load.cycle() } else { load.requeue() }
        }
        start.elapsed().as_nanos() as f64 / f64::from(OPERATIONS)
    })
}

fn main() {
    println!("nanoseconds, median of {ROUNDS} interleaved rounds of {OPERATIONS}; (ratio to the first row)");
    let rows = ["timeline", "two trees", "slices too", "FairQueue", "BTreeMap", "axsched CFS"];
    for (cycles, title) in [(false, "requeue"), (true, "cycle")] {
        println!("{title}");
        for depth in [1, 8, 128, 10_000, 100_000] {
            let mut timers = [
                timer::<Bare<Timeline>>(depth),
                timer::<Bare<TwoTrees>>(depth),
                timer::<Bare<ThreeSums>>(depth),
                timer::<Fair>(depth),
                timer::<Map>(depth),
                timer::<Ax>(depth),
            ];
            let mut taken = vec![Vec::new(); timers.len()];
            for _ in 0..ROUNDS {
                for (timer, taken) in timers.iter_mut().zip(&mut taken) {
                    taken.push(timer(cycles));
                }
            }
            let median = |mut taken: Vec<f64>| {
                taken.sort_by(f64::total_cmp);
                taken[taken.len() / 2]
            };
            let medians: Vec<_> = taken.into_iter().map(median).collect();
            for (row, nanos) in rows.iter().zip(&medians) {
                println!("  depth {depth:>6}  {row:<17} {nanos:>7.0} ({:.2})", nanos / medians[0]);
            }
        }
    }
}
