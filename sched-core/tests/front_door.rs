//! What the documentation of `Scheduler` promises, promise by promise, through its public interface alone.

mod machine;

#[path = "front_door/affinity.rs"]
mod affinity;
#[path = "front_door/balance.rs"]
mod balance;
#[path = "front_door/cfs.rs"]
mod cfs;
#[path = "front_door/delayed.rs"]
mod delayed;
#[path = "front_door/errors.rs"]
mod errors;
#[path = "front_door/exiting.rs"]
mod exiting;
#[path = "front_door/features.rs"]
mod features;
#[path = "front_door/hotplug.rs"]
mod hotplug;
#[path = "front_door/jumps.rs"]
mod jumps;
#[path = "front_door/load.rs"]
mod load;
#[path = "front_door/load_model.rs"]
mod load_model;
#[path = "front_door/params.rs"]
mod params;
#[path = "front_door/random.rs"]
mod random;
#[path = "front_door/requests.rs"]
mod requests;
#[path = "front_door/sleeping.rs"]
mod sleeping;
#[path = "front_door/stop.rs"]
mod stop;
#[path = "front_door/waking.rs"]
mod waking;
#[path = "front_door/watch.rs"]
mod watch;
