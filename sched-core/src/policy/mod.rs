//! The handful of decisions that make a fair queue's policy: whom the average favours, where an entity is placed,
//! how far it may lag, when its request ends. The queue does the rest.

pub(crate) mod eevdf;
