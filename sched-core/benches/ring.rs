//! # What it is
//! The load that shows what the layout of an entity costs: many entities that take turns on one fair queue.
//!
//! # How it works
//! Half of them wait, half sleep in a ring. A step wakes who slept longest, lets the running one sleep and picks.
//! Each entity lies in an allocation of its own, amid the other data of a task.
//! The same source is compiled twice: as it is, and (package `naive`) with the fields in the order of a first draft.
//!
//! # Invariants
//! 1. Both compilations take the same decisions, so only the places of the fields differ (test `layouts_agree`).
//!
//! # Cost
//! As the fair queue.

macro_rules! ring {
    ($name:ident, $core:ident) => {
        pub mod $name {
            use std::collections::VecDeque;

            use $core::{
                SchedEntity, TaskParams, Tunables,
                internals::{Entity, Queue, entity},
            };

            /// A task of a kernel: its entity amid the rest.
            #[repr(C)]
            struct Task {
                _name_and_state: [u64; 5],
                entity: SchedEntity,
                _registers_and_files: [u64; 60],
            }

            pub struct Ring {
                queue: Queue,
                running: Entity,
                sleepers: VecDeque<Entity>,
                entities: Vec<Entity>,
                now: u64,
            }

            impl Ring {
                pub fn new(entities: usize) -> Self {
                    let task = || Task { _name_and_state: [0; 5], entity: entity(), _registers_and_files: [0; 60] };
                    let entities: Vec<_> = (0..entities)
                        .map(|_| {
                            let task: &'static Task = Box::leak(Box::new(task()));
                            // SAFETY: the entity is new, and this ring has one queue.
                            unsafe { Entity::of(&task.entity) }
                        })
                        .collect();
                    let (mut queue, now) = (Queue::new(&Tunables::for_cpus(1), 4_000_000), 1_000_000_000);
                    let (waiting, asleep) = entities.split_at(entities.len() / 2);
                    for entity in waiting {
                        queue.wake(*entity, TaskParams::default(), now);
                    }
                    let running = queue.pick(now).expect("somebody waits");
                    queue.start(running, now);
                    let sleepers = asleep.iter().copied().collect();
                    let mut ring = Self { queue, running, sleepers, entities, now };
                    ring.turn();
                    ring
                }

                /// [`steps`](super::steps) steps.
                #[inline(never)]
                pub fn turn(&mut self) {
                    for _ in 0..super::steps(self.entities.len()) {
                        let wakes = self.sleepers.pop_front().expect("half of them sleep");
                        self.queue.wake(wakes, TaskParams::default(), self.now);
                        self.now += 50_000;
                        self.queue.sleep(self.running, self.now);
                        self.sleepers.push_back(self.running);
                        self.running = self.queue.pick(self.now).expect("somebody waits");
                        self.queue.start(self.running, self.now);
                    }
                }

                /// Where every entity stands.
                #[allow(dead_code, reason = "the test asks")]
                pub fn positions(&self) -> Vec<u64> {
                    self.entities.iter().map(|entity| self.queue.vruntime(*entity).raw()).collect()
                }
            }
        }
    };
}
ring!(lines, sched_core);
ring!(naive, sched_core_naive);

/// Steps of a turn.
pub fn steps(entities: usize) -> usize {
    entities.max(1000)
}
