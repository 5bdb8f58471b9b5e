//! Any bytes are a script for a fair queue and its exact model, of EEVDF or of CFS. They must never differ.
#![no_main]

libfuzzer_sys::fuzz_target!(|script: &[u8]| sched_core::follow_model(script));
