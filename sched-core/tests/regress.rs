//! Reports of users of other schedulers, one story a file: who, what they saw, what must hold.

mod machine;

#[path = "regress/a_change_of_parameters_kicks.rs"]
mod a_change_of_parameters_kicks;
#[path = "regress/a_new_task_inherits_no_debt.rs"]
mod a_new_task_inherits_no_debt;
#[path = "regress/a_queue_holds_runnable_tasks_only.rs"]
mod a_queue_holds_runnable_tasks_only;
#[path = "regress/a_remote_wake_up_kicks.rs"]
mod a_remote_wake_up_kicks;
#[path = "regress/a_request_comes_before_its_kick.rs"]
mod a_request_comes_before_its_kick;
#[path = "regress/a_request_is_cleared_before_the_decision.rs"]
mod a_request_is_cleared_before_the_decision;
#[path = "regress/a_running_task_is_never_moved.rs"]
mod a_running_task_is_never_moved;
#[path = "regress/a_storm_of_nice_changes_overflows_nothing.rs"]
mod a_storm_of_nice_changes_overflows_nothing;
#[path = "regress/an_idle_cpu_is_taken_before_a_busy_one.rs"]
mod an_idle_cpu_is_taken_before_a_busy_one;
#[path = "regress/every_weight_is_served.rs"]
mod every_weight_is_served;
#[path = "regress/memory_comes_back_after_the_cpu_has_left.rs"]
mod memory_comes_back_after_the_cpu_has_left;
#[path = "regress/nice_counts_for_tasks_that_sleep.rs"]
mod nice_counts_for_tasks_that_sleep;
#[path = "regress/nobody_waits_for_another_cpu.rs"]
mod nobody_waits_for_another_cpu;
#[path = "regress/one_task_never_on_two_cpus.rs"]
mod one_task_never_on_two_cpus;
#[path = "regress/pipes_and_joins_never_stall.rs"]
mod pipes_and_joins_never_stall;
#[path = "regress/scheduling_again_queues_nobody_twice.rs"]
mod scheduling_again_queues_nobody_twice;
#[path = "regress/the_default_nice_value_is_zero.rs"]
mod the_default_nice_value_is_zero;
#[path = "regress/time_is_charged_by_the_clock.rs"]
mod time_is_charged_by_the_clock;
#[path = "regress/two_waiters_count_twice.rs"]
mod two_waiters_count_twice;
#[path = "regress/yielding_wins_nothing.rs"]
mod yielding_wins_nothing;
