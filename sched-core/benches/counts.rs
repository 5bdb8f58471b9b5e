//! Instructions and cache misses of the loads in [`lines`] and [`ring`], counted under callgrind, as two tables.
//!
//! The harness starts this program again for each figure and counts what happens in the marked function;
//! [`main`] then reads callgrind's files, divides by the operations and prints.

mod lines;
mod ring;
mod tables;

use lines::{Ax, Bare, Fair, Load, Map, ThreeSums, Timeline, TwoTrees};

/// Operations counted at once.
const OPERATIONS: u64 = 1000;
const DEPTHS: [usize; 5] = [1, 8, 128, 10_000, 100_000];
const ENTITIES: [usize; 3] = [64, 1024, 16_384];

/// A load that has left its start behind.
fn warm<L: Load>(depth: usize) -> L {
    let mut load = L::new(depth);
    (0..2 * depth).for_each(|_| load.requeue());
    load
}

mod counted {
    use gungraun::{Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};

    use super::*;

    /// A load and what is done to it.
    type Run<L> = (L, fn(&mut L));

    fn requeue<L: Load>(depth: usize) -> Run<L> {
        (warm(depth), L::requeue)
    }
    fn cycle<L: Load>(depth: usize) -> Run<L> {
        let mut load: L = warm(depth);
        (0..OPERATIONS).for_each(|_| load.cycle());
        (load, L::cycle)
    }
    fn visit<L: Load>(depth: usize) -> Run<L> {
        let mut load: L = warm(depth);
        (0..OPERATIONS).for_each(|_| load.visit());
        (load, L::visit)
    }
    #[inline(always)]
    fn play<L: Load>((mut load, operation): Run<L>) -> L {
        for _ in 0..OPERATIONS {
            operation(&mut load);
        }
        load
    }

    #[library_benchmark]
    #[benches::requeue(args = [1, 8, 128, 10_000, 100_000], setup = requeue::<Bare<TwoTrees>>)]
    #[benches::cycle(args = [1, 8, 128, 10_000, 100_000], setup = cycle::<Bare<TwoTrees>>)]
    #[benches::visit(args = [1, 8, 128, 10_000, 100_000], setup = visit::<Bare<TwoTrees>>)]
    fn two_trees(run: Run<Bare<TwoTrees>>) -> Bare<TwoTrees> {
        play(run)
    }
    #[library_benchmark]
    #[benches::requeue(args = [1, 8, 128, 10_000, 100_000], setup = requeue::<Bare<ThreeSums>>)]
    #[benches::cycle(args = [1, 8, 128, 10_000, 100_000], setup = cycle::<Bare<ThreeSums>>)]
    #[benches::visit(args = [1, 8, 128, 10_000, 100_000], setup = visit::<Bare<ThreeSums>>)]
    fn three_sums(run: Run<Bare<ThreeSums>>) -> Bare<ThreeSums> {
        play(run)
    }
    #[library_benchmark]
    #[benches::requeue(args = [1, 8, 128, 10_000, 100_000], setup = requeue::<Bare<Timeline>>)]
    #[benches::cycle(args = [1, 8, 128, 10_000, 100_000], setup = cycle::<Bare<Timeline>>)]
    #[benches::visit(args = [1, 8, 128, 10_000, 100_000], setup = visit::<Bare<Timeline>>)]
    fn bare(run: Run<Bare<Timeline>>) -> Bare<Timeline> {
        play(run)
    }
    #[library_benchmark]
    #[benches::requeue(args = [1, 8, 128, 10_000, 100_000], setup = requeue::<Fair>)]
    #[benches::cycle(args = [1, 8, 128, 10_000, 100_000], setup = cycle::<Fair>)]
    #[benches::visit(args = [1, 8, 128, 10_000, 100_000], setup = visit::<Fair>)]
    fn fair(run: Run<Fair>) -> Fair {
        play(run)
    }
    #[library_benchmark]
    #[benches::requeue(args = [1, 8, 128, 10_000, 100_000], setup = requeue::<Map>)]
    #[benches::cycle(args = [1, 8, 128, 10_000, 100_000], setup = cycle::<Map>)]
    #[benches::visit(args = [1, 8, 128, 10_000, 100_000], setup = visit::<Map>)]
    fn map(run: Run<Map>) -> Map {
        play(run)
    }
    #[library_benchmark]
    #[benches::requeue(args = [1, 8, 128, 10_000, 100_000], setup = requeue::<Ax>)]
    #[benches::cycle(args = [1, 8, 128, 10_000, 100_000], setup = cycle::<Ax>)]
    #[benches::visit(args = [1, 8, 128, 10_000, 100_000], setup = visit::<Ax>)]
    fn ax(run: Run<Ax>) -> Ax {
        play(run)
    }
    #[library_benchmark]
    #[benches::pick(args = [1, 8, 128, 10_000, 100_000], setup = Bare::<TwoTrees>::crowd)]
    fn two_trees_crowd(mut load: Bare<TwoTrees>) -> Bare<TwoTrees> {
        load.pick();
        load
    }
    #[library_benchmark]
    #[benches::pick(args = [1, 8, 128, 10_000, 100_000], setup = Bare::<ThreeSums>::crowd)]
    fn three_sums_crowd(mut load: Bare<ThreeSums>) -> Bare<ThreeSums> {
        load.pick();
        load
    }
    #[library_benchmark]
    #[benches::pick(args = [1, 8, 128, 10_000, 100_000], setup = Bare::<Timeline>::crowd)]
    fn bare_crowd(mut load: Bare<Timeline>) -> Bare<Timeline> {
        load.pick();
        load
    }
    fn lined_up(entities: usize) -> ring::lines::Ring {
        ring::lines::Ring::new(entities)
    }
    fn as_declared(entities: usize) -> ring::naive::Ring {
        ring::naive::Ring::new(entities)
    }
    #[library_benchmark]
    #[benches::at(args = [64, 1024, 16_384], setup = lined_up)]
    fn layout_lines(mut ring: ring::lines::Ring) -> ring::lines::Ring {
        ring.turn();
        ring
    }
    #[library_benchmark]
    #[benches::at(args = [64, 1024, 16_384], setup = as_declared)]
    fn layout_naive(mut ring: ring::naive::Ring) -> ring::naive::Ring {
        ring.turn();
        ring
    }

    library_benchmark_group!(
        name = timeline,
        benchmarks = [two_trees, three_sums, bare, fair, map, ax, two_trees_crowd, three_sums_crowd, bare_crowd]
    );
    library_benchmark_group!(name = layout, benchmarks = [layout_lines, layout_naive]);
    main!(
        // The caches of the simulation, not of whatever machine counts.
        config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args([
            "--cache-sim=yes",
            "--D1=32768,8,64",
            "--I1=32768,8,64",
            "--LL=8388608,16,64",
        ])),
        library_benchmark_groups = [timeline, layout]
    );

    pub fn run() {
        main();
    }
}

fn main() {
    tables::main(counted::run);
}
