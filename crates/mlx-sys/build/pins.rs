//! The table of pinned downloads (`pins.txt`).

use crate::failure::{Failure, Outcome};

/// One file on the package index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// What needs it: a backend's name, or `libclang`.
    pub set: String,
    /// The package's name on the index.
    pub package: String,
    /// Its version.
    pub version: String,
    /// The platform tag of the wheel.
    pub platform: String,
    /// SHA-256, lower-case hexadecimal.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
}

impl Pin {
    /// `package version (platform)`, as messages name it.
    pub fn label(&self) -> String {
        format!("{} {} ({})", self.package, self.version, self.platform)
    }
}

/// Reads the table; a faulty line is named by its number.
pub fn parse(text: &str) -> Outcome<Vec<Pin>> {
    let mut pins = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let wrong = |why: String| Failure::new(format!("pins.txt, line {}: {why}", index + 1));
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [set, package, version, platform, sha256, bytes] = fields[..] else {
            return Err(wrong(format!("{} fields instead of 6", fields.len())));
        };
        let is_hash = sha256.len() == 64
            && sha256
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if !is_hash {
            return Err(wrong(format!(
                "`{sha256}` is no SHA-256 in lower-case hexadecimal"
            )));
        }
        pins.push(Pin {
            set: set.to_owned(),
            package: package.to_owned(),
            version: version.to_owned(),
            platform: platform.to_owned(),
            sha256: sha256.to_owned(),
            bytes: bytes
                .parse()
                .map_err(|_| wrong(format!("`{bytes}` is no size in bytes")))?,
        });
    }
    Ok(pins)
}

/// The machine that the build is for, as far as wheels care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine<'a> {
    /// `CARGO_CFG_TARGET_OS`.
    pub os: &'a str,
    /// `CARGO_CFG_TARGET_ARCH`.
    pub arch: &'a str,
    /// macOS's major version that the result must run on; none elsewhere.
    pub macos: Option<u32>,
}

/// The files of a set that suit a machine, one a package: the newest platform tag that still runs there.
pub fn choose<'p>(pins: &'p [Pin], set: &str, machine: Machine<'_>) -> Vec<&'p Pin> {
    let mut chosen: Vec<(&Pin, u32)> = Vec::new();
    for pin in pins.iter().filter(|pin| pin.set == set) {
        let Some(rank) = suits(&pin.platform, machine) else {
            continue;
        };
        match chosen.iter_mut().find(|(c, _)| c.package == pin.package) {
            Some(best) if best.1 >= rank => {}
            Some(best) => *best = (pin, rank),
            None => chosen.push((pin, rank)),
        }
    }
    chosen.into_iter().map(|(pin, _)| pin).collect()
}

/// Whether a platform tag runs on the machine; the number orders tags, newest highest.
fn suits(tag: &str, machine: Machine<'_>) -> Option<u32> {
    let wheel_arch = match (machine.os, machine.arch) {
        ("macos", "aarch64") => "arm64",
        ("linux", arch) => arch,
        _ => return None,
    };
    let rest = tag.strip_suffix(wheel_arch)?.strip_suffix('_')?;
    if machine.os == "macos" {
        let (major, _minor) = rest.strip_prefix("macosx_")?.split_once('_')?;
        let major: u32 = major.parse().ok()?;
        return (major <= machine.macos.unwrap_or(0)).then_some(major);
    }
    rest.starts_with("manylinux").then_some(0)
}

/// The glibc that a `manylinux_2_35_x86_64` tag asks for.
pub fn glibc(tag: &str) -> Option<(u32, u32)> {
    let mut numbers = tag.strip_prefix("manylinux_")?.split('_');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
