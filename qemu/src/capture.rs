//! Kernel files cut out of the console: `--capture`.
//!
//! # What it is
//! A reader of framed dumps, and a writer that puts them under a folder at their
//! kernel path.
//!
//! # How it works
//! A dump stands between `--- begin PATH` and
//! `--- end PATH lines=N crc32=XXXXXXXX`; the checksum is that of IEEE 802.3 over
//! the lines between, each with its line feed.
//! A dump that does not match its frame is not written, and named.
//!
//! # Invariants
//! 1. Nothing is written outside the folder.
//! 2. A file that is written is what the guest sent, byte for byte.
//!
//! # Cost
//! The dumps are held in memory until the run ends.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use crate::outcome::{failed, usage};
use crate::paths;

const BEGIN: &str = "--- begin ";
const END: &str = "--- end ";

/// The dumps seen so far.
#[derive(Debug, Default)]
pub struct Capture {
    open: Option<Frame>,
    files: BTreeMap<PathBuf, Vec<u8>>,
    faults: Vec<String>,
}

#[derive(Debug)]
struct Frame {
    path: String,
    content: Vec<u8>,
    lines: u64,
}

impl Capture {
    /// Reads the next line of the console, without its line feed.
    pub fn line(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        if let Some(path) = text.strip_prefix(BEGIN) {
            self.abandon();
            self.open = Some(Frame { path: path.trim_end().to_owned(), content: Vec::new(), lines: 0 });
        } else if let Some(trailer) = text.strip_prefix(END) {
            match self.open.take() {
                Some(frame) => self.close(frame, trailer),
                None => self.faults.push(format!("a dump ends that never began: {trailer}")),
            }
        } else if let Some(frame) = &mut self.open {
            frame.content.extend_from_slice(line);
            frame.content.push(b'\n');
            frame.lines += 1;
        }
    }

    /// Writes the files below `dir`; damaged dumps are one error, in one line.
    pub fn write(mut self, dir: &Path) -> Result<Vec<PathBuf>> {
        self.abandon();
        for (path, content) in &self.files {
            let file = dir.join(path);
            let parent = file.parent().unwrap_or(dir);
            fs::create_dir_all(parent).with_context(|| format!("--capture: cannot make {}", parent.display()))?;
            fs::write(&file, content).with_context(|| format!("--capture: cannot write {}", file.display()))?;
        }
        if !self.faults.is_empty() {
            return Err(failed(format!("--capture: {}", self.faults.join("; "))));
        }
        Ok(self.files.into_keys().collect())
    }

    fn close(&mut self, frame: Frame, trailer: &str) {
        let crc32 = crc32fast::hash(&frame.content);
        let expected = format!("{} lines={} crc32={crc32:08x}", frame.path, frame.lines);
        if !trailer.trim_end().eq_ignore_ascii_case(&expected) {
            let fault = format!(
                "the dump of {} is damaged: it is '{expected}', its frame says '{}'",
                frame.path,
                trailer.trim_end()
            );
            self.faults.push(fault);
            return;
        }
        match relative(&frame.path) {
            Some(path) => drop(self.files.insert(path, frame.content)),
            None => self.faults.push(format!("'{}' is no path of a kernel file", frame.path)),
        }
    }

    fn abandon(&mut self) {
        if let Some(frame) = self.open.take() {
            self.faults.push(format!("the dump of {} has no end", frame.path));
        }
    }
}

/// Makes the folder for captured files, or refuses it; to be asked before the boot,
/// which would be lost with a folder that cannot be written.
pub fn prepare(dir: &Path) -> Result<()> {
    paths::make_usable(dir).map_err(|error| {
        usage(format!("--capture: cannot write in {}: {error}; a folder that can be made is accepted", dir.display()))
    })
}

/// An absolute path without `..` as a path below a folder.
fn relative(path: &str) -> Option<PathBuf> {
    let mut components = Path::new(path).components();
    let is_absolute = components.next() == Some(Component::RootDir);
    let rest = components.as_path();
    let is_plain = components.all(|part| matches!(part, Component::Normal(_)));
    (is_absolute && is_plain && rest.file_name().is_some()).then(|| rest.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(console: &str) -> Capture {
        let mut capture = Capture::default();
        console.lines().for_each(|line| capture.line(line.as_bytes()));
        capture
    }

    fn frame(path: &str, content: &str) -> String {
        let lines = content.lines().count();
        let crc32 = crc32fast::hash(content.as_bytes());
        format!("--- begin {path}\n{content}--- end {path} lines={lines} crc32={crc32:08X}\n")
    }

    fn fault(console: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        captured(console).write(dir.path()).unwrap_err().to_string()
    }

    #[test]
    fn dumps_are_written_at_their_kernel_path() {
        let dir = tempfile::tempdir().unwrap();
        let console = format!(
            "noise\n{}more noise\n{}{}",
            frame("/proc/schedstat", "version 17\ncpu0 1 2\n"),
            frame("/proc/pressure/cpu", ""),
            frame("/proc/loadavg", "0.00\n"),
        );
        let files = captured(&console).write(dir.path()).unwrap();
        assert_eq!(files.len(), 3);
        let read = |path| fs::read_to_string(dir.path().join(path)).unwrap();
        assert_eq!(read("proc/schedstat"), "version 17\ncpu0 1 2\n");
        assert_eq!(read("proc/pressure/cpu"), "");
    }

    #[test]
    fn the_checksum_is_the_common_one() {
        let known = "--- begin /a\n123456789\n--- end /a lines=1 crc32=54BE4C61\n";
        // CRC-32 of "123456789" is CBF43926; here with its line feed.
        assert_eq!(crc32fast::hash(b"123456789"), 0xCBF4_3926);
        let crc32 = format!("{:08X}", crc32fast::hash(b"123456789\n"));
        let console = known.replace("54BE4C61", &crc32);
        assert!(captured(&console).faults.is_empty());
    }

    #[test]
    fn a_damaged_dump_is_named_in_one_line_and_not_written() {
        let good = frame("/proc/schedstat", "version 17\n");
        for bad in [
            good.replace("version 17", "version 18"),
            good.replace("lines=1", "lines=2"),
            good.replace("end /proc/schedstat", "end /proc/stat"),
            good.replace("--- end", "---end"),
            good.lines().skip(1).collect::<Vec<_>>().join("\n"),
        ] {
            let fault = fault(&bad);
            assert!(fault.contains("/proc/schedstat") && !fault.contains('\n'), "{fault}");
            assert!(captured(&bad).files.is_empty());
        }
    }

    #[test]
    fn nothing_leaves_the_folder() {
        for path in ["/proc/../../etc/x", "proc/x", "/", "/proc/./../.."] {
            assert!(fault(&frame(path, "x\n")).contains("no path"), "{path}");
        }
    }

    #[test]
    fn the_last_dump_of_a_file_counts() {
        let console = frame("/a", "1\n") + &frame("/a", "2\n");
        assert_eq!(captured(&console).files[Path::new("a")], b"2\n");
    }
}
