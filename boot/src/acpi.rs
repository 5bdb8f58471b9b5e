//! What the firmware's tables say.
//!
//! # What it is
//! The CPUs and the local APIC's address from the MADT, and how to power off from the FADT and `\_S5`.
//!
//! # How it works
//! The `acpi` crate finds and checks the tables, through the temporary map of the low 4 GiB;
//! the facts are copied out of them. The loader's root pointer is tried first, then a search in the BIOS area.
//!
//! # Invariants
//! 1. The boot CPU is first in the list, whatever the table's order; no identifier is listed twice.
//! 2. Nothing returned refers to the tables.
//!
//! # Cost
//! One checksum pass over each table looked for.

use crate::aml;
use crate::info::{Cpu, PowerOff, PowerOffRegister};
use crate::layout;
use crate::pvh::TEMPORARY_BYTES;
use crate::serial::fail;
use crate::start::MAX_CPUS;
use ::acpi::address::{AddressSpace, GenericAddress};
use ::acpi::fadt::Fadt;
use ::acpi::madt::{Madt, MadtEntry};
use ::acpi::{AcpiError, AcpiHandler, AcpiTables, PhysicalMapping};
use arrayvec::ArrayVec;
use core::ptr::NonNull;

/// The entry's CPU may be used.
const MADT_ENABLED: u32 = 1;
/// SLP_EN of a PM1 control register.
const SLEEP_ENABLE: u16 = 1 << 13;
/// Lowest bit of SLP_TYP of a PM1 control register.
const SLEEP_TYPE_SHIFT: u32 = 10;

/// The facts.
pub(crate) struct Facts {
    pub cpus: ArrayVec<Cpu, MAX_CPUS>,
    pub cpus_left_out: usize,
    pub lapic_phys: u64,
    pub power_off: Option<PowerOff>,
}

/// Gives the `acpi` crate access to the low 4 GiB through the temporary tables.
#[derive(Clone)]
struct LowMemory;

impl AcpiHandler for LowMemory {
    unsafe fn map_physical_region<T>(&self, phys: usize, bytes: usize) -> PhysicalMapping<Self, T> {
        if (phys as u64).saturating_add(bytes as u64) > TEMPORARY_BYTES {
            fail(format_args!("an ACPI table lies at {phys:#x}, {bytes} bytes long; tables below 4 GiB are needed"));
        }
        let virt = NonNull::new(layout::phys_to_virt(phys as u64)).expect("the map starts above 0");
        // SAFETY: The region is inside the temporary map.
        unsafe { PhysicalMapping::new(phys, virt.cast(), bytes, bytes, Self) }
    }

    fn unmap_physical_region<T>(_: &PhysicalMapping<Self, T>) {}
}

/// Reads the tables. `boot_apic_id` is the CPU that runs this.
///
/// # Safety
/// The temporary tables are loaded.
pub(crate) unsafe fn read(rsdp_phys: Option<u64>, boot_apic_id: u32) -> Result<Facts, AcpiError> {
    // SAFETY: The caller's; the loader vouches for the address, and the crate checks what it finds there.
    let given = rsdp_phys.map(|phys| unsafe { AcpiTables::from_rsdp(LowMemory, phys as usize) });
    let tables = match given {
        Some(Ok(tables)) => tables,
        // SAFETY: The low 1 MiB is a BIOS's, or plain RAM; reading it has no effect.
        _ => unsafe { AcpiTables::search_for_rsdp_bios(LowMemory)? },
    };

    let madt = tables.find_table::<Madt>()?;
    let mut cpus = ArrayVec::new();
    let mut cpus_left_out = 0;
    let mut lapic_phys = u64::from(madt.get().local_apic_address);
    cpus.push(Cpu { apic_id: boot_apic_id });
    for entry in madt.get().entries() {
        let (apic_id, flags) = match entry {
            MadtEntry::LocalApic(entry) => (u32::from(entry.apic_id), entry.flags),
            MadtEntry::LocalX2Apic(entry) => (entry.x2apic_id, entry.flags),
            MadtEntry::LocalApicAddressOverride(entry) => {
                lapic_phys = entry.local_apic_address;
                continue;
            }
            _ => continue,
        };
        let cpu = Cpu { apic_id };
        if flags & MADT_ENABLED == 0 || cpus.contains(&cpu) {
            continue;
        }
        if cpus.try_push(cpu).is_err() {
            cpus_left_out += 1;
        }
    }

    Ok(Facts { cpus, cpus_left_out, lapic_phys, power_off: power_off(&tables) })
}

/// Works out how to power off, if the tables say it in the usual way.
fn power_off(tables: &AcpiTables<LowMemory>) -> Option<PowerOff> {
    let fadt = tables.find_table::<Fadt>().ok()?;
    let sleep_type = tables.dsdt().into_iter().chain(tables.ssdts()).find_map(|table| {
        let code = layout::phys_to_virt(table.address as u64);
        // SAFETY: The crate has checked the table's checksum over this very range.
        aml::find_s5(unsafe { core::slice::from_raw_parts(code, table.length as usize) })
    })?;
    let register = |address: GenericAddress, sleep_type: u8| {
        let port = u16::try_from(address.address).ok().filter(|&port| port != 0)?;
        (address.address_space == AddressSpace::SystemIo)
            .then_some(PowerOffRegister { port, value: u16::from(sleep_type) << SLEEP_TYPE_SHIFT | SLEEP_ENABLE })
    };
    Some(PowerOff {
        pm1a: register(fadt.pm1a_control_block().ok()?, sleep_type.a)?,
        pm1b: fadt.pm1b_control_block().ok().flatten().and_then(|address| register(address, sleep_type.b)),
    })
}
