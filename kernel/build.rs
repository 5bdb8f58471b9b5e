//! Links the kernel by its own script; on a host, where it is only type-checked, it does nothing.

fn main() {
    println!("cargo::rerun-if-changed=linker.ld");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none") {
        let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
        println!("cargo::rustc-link-arg-bins=-T{here}/linker.ld");
        println!("cargo::rustc-link-arg-bins=-zmax-page-size=4096");
    }
}
