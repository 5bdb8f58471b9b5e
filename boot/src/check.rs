//! The page tables, read back.
//!
//! # What it is
//! A walk over everything the CPU would see, which compares it with what [`crate::layout`] promises.
//!
//! # How it works
//! It starts at CR3 and visits every present entry of the four levels; each leaf is judged by its address,
//! its rights (those of all levels together) and the frames behind it.
//!
//! # Invariants
//! 1. It only reads, and finds what the CPU uses, not what [`crate::paging`] remembers.
//!
//! # Cost
//! One step for each page-table entry present: about a thousand for the image and 512 MiB of RAM, about half a millisecond under TCG.

use crate::layout::{
    self, DEVICES, DEVICES_BYTES, DIRECT_MAP, DIRECT_MAP_BYTES, Image, KERNEL_BASE, PAGE, STACK_SLOT_PAGES,
    STACK_SLOTS, STACKS,
};
use crate::paging;
use core::fmt;
use x86_64::registers::control::{Cr0, Cr0Flags, Cr3, Efer, EferFlags};
use x86_64::structures::paging::{PageTable, PageTableFlags as Flags};

const TOP_LEVEL: u32 = 4;
const LOWER_HALF_END: u64 = 1 << 47;

/// What was found, when it is as it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Bytes that may be executed; none of them may be written.
    pub execute_bytes: u64,
    /// Bytes of the image that may only be read.
    pub read_only_bytes: u64,
    /// Bytes of the image that may be written.
    pub data_bytes: u64,
    /// Bytes of the map of all RAM.
    pub direct_bytes: u64,
    /// Stacks, each with an unmapped page below it.
    pub stacks: u64,
    /// Bytes of mapped device registers.
    pub device_bytes: u64,
}

/// What was found, when it is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// CR0.WP or EFER.NXE is off, so that rights mean less than they say.
    Control,
    /// A page of the lower half, page 0 among them, is mapped.
    LowerHalf(u64),
    /// A page may be both written and executed.
    WriteExecute(u64),
    /// A page may be executed that is not text.
    Execute(u64),
    /// A page gives write access to a frame of the text or of the constants.
    WritableAlias(u64),
    /// A page of the image has other rights than its section, or is missing.
    Section(u64),
    /// A guard page is mapped, or a page right above one's stack is not.
    Guard(u64),
    /// A page lies in no area.
    Stray(u64),
    /// A page may be used by user mode, which does not exist.
    User(u64),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "text {} KiB read-execute, constants {} KiB read-only, data {} KiB no-execute, \
             RAM {} MiB no-execute, {} stacks guarded, devices {} KiB, lower half empty",
            self.execute_bytes >> 10,
            self.read_only_bytes >> 10,
            self.data_bytes >> 10,
            self.direct_bytes >> 20,
            self.stacks,
            self.device_bytes >> 10,
        )
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Control => write!(f, "write-protect or no-execute is off"),
            Self::LowerHalf(at) => write!(f, "{at:#x} in the lower half is mapped"),
            Self::WriteExecute(at) => write!(f, "{at:#x} is writable and executable"),
            Self::Execute(at) => write!(f, "{at:#x} is executable and not text"),
            Self::WritableAlias(at) => write!(f, "{at:#x} gives write access to text or constants"),
            Self::Section(at) => write!(f, "{at:#x} has not the rights of its section"),
            Self::Guard(at) => write!(f, "{at:#x}: the guard page is mapped or the stack is not"),
            Self::Stray(at) => write!(f, "{at:#x} is mapped outside all areas"),
            Self::User(at) => write!(f, "{at:#x} is open to user mode"),
        }
    }
}

/// One mapped page of any size.
struct Leaf {
    virt: u64,
    phys: u64,
    bytes: u64,
    may_write: bool,
    may_execute: bool,
    may_user: bool,
}

/// Walks the tables this CPU uses and checks them.
pub fn check() -> Result<Report, Violation> {
    if !Cr0::read().contains(Cr0Flags::WRITE_PROTECT) || !Efer::read().contains(EferFlags::NO_EXECUTE_ENABLE) {
        return Err(Violation::Control);
    }
    // The lock keeps tables from growing under the walk.
    paging::with(|space| {
        let image = space.image();
        let root = Cr3::read().0.start_address().as_u64();
        let mut report = Report { stacks: space.stacks(), ..Report::default() };
        // SAFETY: CR3 holds the root of our tables, and the lock is held.
        unsafe { walk(root, TOP_LEVEL, 0, (true, true, true), &mut |leaf| judge(&leaf, image, &mut report))? };
        for slot in 0..space.stacks() {
            let guard = STACKS + slot * STACK_SLOT_PAGES * PAGE;
            let last = guard + (STACK_SLOT_PAGES - 1) * PAGE;
            // SAFETY: As above.
            let (guard_mapped, last_mapped) = unsafe { (is_mapped(root, guard), is_mapped(root, last)) };
            if guard_mapped || !last_mapped {
                return Err(Violation::Guard(guard));
            }
        }
        let sizes = [
            (report.execute_bytes, image.text_start, image.rodata_start),
            (report.read_only_bytes, image.rodata_start, image.data_start),
            (report.data_bytes, image.data_start, image.end),
        ];
        match sizes.iter().find(|&&(bytes, start, end)| bytes != end - start) {
            Some(&(_, start, _)) => Err(Violation::Section(KERNEL_BASE + start)),
            None => Ok(report),
        }
    })
}

/// Judges one leaf and counts it.
fn judge(leaf: &Leaf, image: Image, report: &mut Report) -> Result<(), Violation> {
    let &Leaf { virt, phys, bytes, may_write, may_execute, may_user } = leaf;
    let end = virt + (bytes - 1);
    let is_in = |start: u64, bytes: u64| virt >= start && end - start < bytes;
    if virt < LOWER_HALF_END {
        return Err(Violation::LowerHalf(virt));
    }
    if may_user {
        return Err(Violation::User(virt));
    }
    if may_write && may_execute {
        return Err(Violation::WriteExecute(virt));
    }
    if may_write && phys < image.data_start && phys + bytes > image.text_start {
        return Err(Violation::WritableAlias(virt));
    }
    if is_in(KERNEL_BASE, 1 << 31) {
        let section = match phys {
            _ if virt - KERNEL_BASE != phys || phys < image.text_start || phys >= image.end => None,
            _ if phys < image.rodata_start => Some((false, true, &mut report.execute_bytes)),
            _ if phys < image.data_start => Some((false, false, &mut report.read_only_bytes)),
            _ => Some((true, false, &mut report.data_bytes)),
        };
        return match section {
            Some((write, execute, sum)) if (write, execute) == (may_write, may_execute) => {
                *sum += bytes;
                Ok(())
            }
            _ => Err(Violation::Section(virt)),
        };
    }
    if may_execute {
        return Err(Violation::Execute(virt));
    }
    if is_in(DIRECT_MAP, DIRECT_MAP_BYTES) {
        report.direct_bytes += bytes;
    } else if is_in(DEVICES, DEVICES_BYTES) {
        report.device_bytes += bytes;
    } else if is_in(STACKS, STACK_SLOTS * STACK_SLOT_PAGES * PAGE) {
        if layout::is_stack_guard(virt) || virt >= STACKS + report.stacks * STACK_SLOT_PAGES * PAGE {
            return Err(Violation::Guard(virt));
        }
    } else {
        return Err(Violation::Stray(virt));
    }
    Ok(())
}

/// Visits every leaf below a table; `rights` are write, execute and user of the levels above.
///
/// # Safety
/// The table is one of ours at that level, and nobody changes it meanwhile.
unsafe fn walk(
    table_phys: u64,
    level: u32,
    base: u64,
    rights: (bool, bool, bool),
    visit: &mut impl FnMut(Leaf) -> Result<(), Violation>,
) -> Result<(), Violation> {
    // SAFETY: Tables lie in the map of all RAM.
    let table = unsafe { &*layout::phys_to_virt(table_phys).cast::<PageTable>() };
    let bytes = 1u64 << (12 + 9 * (level - 1));
    for (index, entry) in table.iter().enumerate() {
        let flags = entry.flags();
        if !flags.contains(Flags::PRESENT) {
            continue;
        }
        let virt = canonical(base + index as u64 * bytes);
        let rights = (
            rights.0 && flags.contains(Flags::WRITABLE),
            rights.1 && !flags.contains(Flags::NO_EXECUTE),
            rights.2 && flags.contains(Flags::USER_ACCESSIBLE),
        );
        let phys = entry.addr().as_u64();
        if level == 1 || flags.contains(Flags::HUGE_PAGE) {
            let (may_write, may_execute, may_user) = rights;
            visit(Leaf { virt, phys, bytes, may_write, may_execute, may_user })?;
        } else {
            // SAFETY: A present entry that is no leaf leads to a table of the next level.
            unsafe { walk(phys, level - 1, virt, rights, visit)? };
        }
    }
    Ok(())
}

/// Whether the page at `virt` is mapped.
///
/// # Safety
/// As for [`walk`].
unsafe fn is_mapped(root_phys: u64, virt: u64) -> bool {
    let mut table_phys = root_phys;
    for level in (1..=TOP_LEVEL).rev() {
        // SAFETY: Tables lie in the map of all RAM.
        let table = unsafe { &*layout::phys_to_virt(table_phys).cast::<PageTable>() };
        let entry = &table[(virt >> (12 + 9 * (level - 1)) & 511) as usize];
        if !entry.flags().contains(Flags::PRESENT) {
            return false;
        }
        if entry.flags().contains(Flags::HUGE_PAGE) {
            return true;
        }
        table_phys = entry.addr().as_u64();
    }
    true
}

/// Repeats bit 47 upwards.
fn canonical(virt: u64) -> u64 {
    ((virt << 16) as i64 >> 16) as u64
}
