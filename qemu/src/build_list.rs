//! What is compiled into a kernel: the value of `--build`.
//!
//! # What it is
//! A parsed, checked and normalised list of kernel features.
//!
//! # How it works
//! The kernel's own `Cargo.toml` says which features exist, so that a feature
//! added there is accepted here on the same day.
//! `all` and `none` are short for lists;
//! every list has one normal form, hence one file name.
//!
//! # Invariants
//! 1. Two lists that mean the same kernel have the same [`BuildList::name`].
//! 2. A list never holds a feature that the kernel does not have.
//!
//! # Cost
//! One small file is read.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::outcome::usage;

/// The hooks that `all` stands for, as far as the kernel has them.
const HOOKS: [&str; 4] = ["schedstats", "psi", "latencytop", "trace"];

/// Options that no short name implies.
const OPTIONS: [&str; 2] = ["debug", "psi-default-enabled"];

/// Features that bring others along.
const IMPLIES: [(&str, &str); 1] = [("psi-default-enabled", "psi")];

/// A checked list of kernel features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildList {
    features: Vec<&'static str>,
    name: String,
}

impl BuildList {
    /// Reads `text` against the features of the kernel in `workspace`.
    pub fn parse(text: &str, workspace: &Path) -> Result<BuildList> {
        let manifest = workspace.join("kernel/Cargo.toml");
        let manifest_text =
            fs::read_to_string(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
        let available =
            features_of(&manifest_text).with_context(|| format!("cannot understand {}", manifest.display()))?;
        BuildList::from_parts(text, &available)
    }

    /// The features in their fixed order.
    pub fn features(&self) -> &[&'static str] {
        &self.features
    }

    /// The list in its normal form.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file name of the finished kernel.
    pub fn file_name(&self) -> String {
        format!("kernel-{}", self.name.replace(',', "+"))
    }

    fn from_parts(text: &str, available: &BTreeSet<String>) -> Result<BuildList> {
        let exists = |name: &str| available.contains(name);
        let mut chosen = BTreeSet::new();
        let items: Vec<&str> = text.split(',').map(str::trim).collect();
        if items.contains(&"") {
            let what = if items.len() == 1 { "the list" } else { "an element of the list" };
            return Err(usage(format!("--build: {what} is empty; accepted are all, none and {}", accepted(available))));
        }
        // `debug` is no hook: `none,debug` says exactly what it means.
        if items.contains(&"none") && items.iter().filter(|item| **item != "debug").count() > 1 {
            return Err(usage(format!("--build: none stands alone or with debug; '{text}' names more")));
        }
        for item in items {
            match item {
                "all" => chosen.extend(HOOKS.into_iter().filter(|hook| exists(hook))),
                "none" => {}
                _ => {
                    let known = HOOKS.into_iter().chain(OPTIONS).find(|name| *name == item);
                    let name = known.filter(|name| exists(name)).ok_or_else(|| {
                        let state = if known.is_some() { "is not built yet" } else { "is unknown" };
                        usage(format!("--build: '{item}' {state}; accepted are all, none and {}", accepted(available)))
                    })?;
                    chosen.insert(name);
                }
            }
        }
        for (feature, implied) in IMPLIES {
            if chosen.contains(feature) {
                chosen.insert(implied);
            }
        }
        let features: Vec<_> = HOOKS.into_iter().chain(OPTIONS).filter(|name| chosen.contains(name)).collect();
        let name = normal_name(&features, available);
        Ok(BuildList { features, name })
    }
}

fn normal_name(features: &[&str], available: &BTreeSet<String>) -> String {
    let is_hook = |name: &&&str| HOOKS.contains(*name);
    let hooks: Vec<&str> = features.iter().filter(is_hook).copied().collect();
    let all = HOOKS.iter().filter(|hook| available.contains(**hook)).count();
    let mut parts = match hooks.len() {
        0 => vec!["none"],
        count if count == all => vec!["all"],
        _ => hooks,
    };
    parts.extend(features.iter().filter(|name| OPTIONS.contains(*name)));
    parts.join(",")
}

fn accepted(available: &BTreeSet<String>) -> String {
    let names: Vec<_> = HOOKS.into_iter().chain(OPTIONS).filter(|name| available.contains(*name)).collect();
    names.join(", ")
}

fn features_of(manifest: &str) -> Result<BTreeSet<String>> {
    let table: toml::Table = manifest.parse()?;
    let features = table.get("features").and_then(toml::Value::as_table);
    Ok(features.into_iter().flat_map(|table| table.keys().cloned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn today() -> BTreeSet<String> {
        ["default", "schedstats", "psi", "psi-default-enabled", "debug"].map(String::from).into()
    }

    fn parse(text: &str) -> Result<BuildList> {
        BuildList::from_parts(text, &today())
    }

    #[test]
    fn all_is_every_hook_that_exists() {
        let list = parse("all").unwrap();
        assert_eq!(list.features(), ["schedstats", "psi"]);
        assert_eq!(list.name(), "all");
    }

    #[test]
    fn lists_with_one_meaning_have_one_name() {
        for text in ["schedstats,psi", "psi,schedstats", "all,psi", " psi , schedstats", "psi,schedstats,psi"] {
            assert_eq!(parse(text).unwrap().name(), "all", "{text}");
        }
        assert_eq!(parse("none").unwrap().name(), "none");
        assert_eq!(parse("psi-default-enabled").unwrap().features(), ["psi", "psi-default-enabled"]);
        assert_eq!(parse("psi-default-enabled").unwrap().name(), "psi,psi-default-enabled");
    }

    #[test]
    fn every_normal_form_is_accepted() {
        for text in ["all", "none", "psi", "debug", "all,debug", "psi-default-enabled", "psi-default-enabled,debug"] {
            let name = parse(text).unwrap().name;
            assert_eq!(parse(&name).unwrap().name, name, "{text}");
        }
    }

    #[test]
    fn debug_is_never_implied_and_goes_with_everything() {
        assert!(!parse("all").unwrap().features().contains(&"debug"));
        assert_eq!(parse("debug,all").unwrap().features(), ["schedstats", "psi", "debug"]);
        assert_eq!(parse("debug,all").unwrap().name(), "all,debug");
        for text in ["none,debug", "debug", "debug,none"] {
            assert_eq!(parse(text).unwrap().features(), ["debug"], "{text}");
            assert_eq!(parse(text).unwrap().name(), "none,debug");
        }
        assert_eq!(parse("all,debug").unwrap().file_name(), "kernel-all+debug");
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for text in [
            "none,all",
            "psi,none",
            "none,none",
            "none,psi-default-enabled",
            "none,debug,psi",
            "psi,,schedstats",
            "psi,",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_does_not_exist_is_named() {
        let unknown = parse("all,speed").unwrap_err().to_string();
        assert!(unknown.contains("'speed' is unknown"), "{unknown}");
        assert!(unknown.contains("schedstats, psi"), "{unknown}");
        let later = parse("latencytop").unwrap_err().to_string();
        assert!(later.contains("'latencytop' is not built yet"), "{later}");
        assert!(parse("").is_err());
        assert!(parse(",").is_err());
    }

    #[test]
    fn the_kernel_in_this_workspace_has_features() {
        let list = BuildList::parse("all", &crate::paths::workspace()).unwrap();
        assert!(list.features().contains(&"schedstats"));
    }
}
