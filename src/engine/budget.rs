//! How much device memory there is for keys and values: arithmetic over what MLX and the system tell.

/// What MLX and the system tell of memory, in bytes; `None` where they don't.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readings {
    /// MLX's own limit.
    pub mlx_limit: Option<u64>,
    /// What MLX keeps for reuse: taken from the system, and free for us.
    pub mlx_cache: u64,
    /// Metal: what it recommends to fill.
    pub working_set: Option<u64>,
    /// CUDA: all of the device's memory.
    pub gpu_total: Option<u64>,
    /// CUDA: what nobody holds.
    pub gpu_free: Option<u64>,
    /// The host's, where the CPU computes.
    pub host: Host,
}

/// The host's memory, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Host {
    /// All that the machine has, or the least that a control group of this process may fill.
    pub total: Option<u64>,
    /// What can be had without pushing anybody out: of the machine, or of a control group where that has less.
    pub available: Option<u64>,
}

impl Readings {
    /// All that MLX may fill, the weights included.
    pub fn total(&self) -> u64 {
        /// Where nothing is known.
        const SOME: u64 = 8 << 30;
        let known = [self.mlx_limit, self.working_set, self.gpu_total, self.host.total];
        known.into_iter().flatten().min().unwrap_or(SOME)
    }

    /// What MLX may fill now without pushing anybody out.
    pub fn free(&self) -> u64 {
        let free = [self.gpu_free, self.host.available].into_iter().flatten().min();
        free.map_or(self.total(), |free| {
            free.saturating_add(self.mlx_cache).min(self.total())
        })
    }

    /// The KV budget where none is set: half of what device memory leaves after the weights, which are loaded; and of no
    /// more than others leave.
    pub fn default_kv_budget(&self, weight_bytes: u64) -> u64 {
        let after_weights = self.total().saturating_sub(weight_bytes);
        after_weights.min(self.free()) / 2
    }
}

impl Host {
    /// Reads Linux's files by a function from path to text: the machine's memory, and every control group from this
    /// process's own up to the root, of version 1 or 2. Elsewhere nothing is known.
    pub fn read(file: impl Fn(&str) -> Option<String>) -> Self {
        let info = file("/proc/meminfo").unwrap_or_default();
        let (mut total, mut available) = (kib(&info, "MemTotal:"), kib(&info, "MemAvailable:"));
        let mut lower = |limit: u64, left: u64| {
            total = Some(total.map_or(limit, |total| total.min(limit)));
            available = Some(available.map_or(left, |available| available.min(left)));
        };
        for line in file("/proc/self/cgroup").unwrap_or_default().lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
                continue;
            };
            let version = match controllers {
                "" => &VERSION_2,
                _ if controllers.split(',').any(|name| name == "memory") => &VERSION_1,
                _ => continue,
            };
            for path in ancestors(path) {
                let number = |name| {
                    file(&format!("{}{path}/{name}", version.root))?
                        .trim()
                        .parse::<u64>()
                        .ok()
                };
                // No limit is `max` in version 2, and more than any machine has in version 1.
                let Some(limit) = number(version.limit) else {
                    continue;
                };
                let stat = file(&format!("{}{path}/memory.stat", version.root)).unwrap_or_default();
                // Files' pages count as used, and give way.
                let files = version
                    .files
                    .iter()
                    .filter_map(|name| stat_bytes(&stat, name))
                    .sum();
                let used = number(version.used).unwrap_or(0).saturating_sub(files);
                lower(limit, limit.saturating_sub(used));
            }
        }
        Self { total, available }
    }
}

/// Where a control group's figures are.
struct Version {
    root: &'static str,
    limit: &'static str,
    used: &'static str,
    files: [&'static str; 2],
}

const VERSION_2: Version = Version {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    files: ["inactive_file", "active_file"],
};

const VERSION_1: Version = Version {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    files: ["total_inactive_file", "total_active_file"],
};

/// `/a/b`, `/a`, and the root as nothing. In a container the path may be the host's, and only the root be there.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    let whole = path.trim_end_matches('/');
    std::iter::successors(Some(whole), |path| {
        path.rfind('/').and_then(|end| path.get(..end))
    })
}

/// A line of `/proc/meminfo`, in bytes.
pub(super) fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// A line of `memory.stat`.
fn stat_bytes(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(found, _)| *found == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 1 << 30;

    /// Files by path.
    fn host(files: &[(&str, &str)]) -> Host {
        Host::read(|path| {
            let found = files.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    const INFO: (&str, &str) = (
        "/proc/meminfo",
        "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n",
    );

    #[test]
    fn a_machine_without_groups_has_what_meminfo_says() {
        let read = host(&[INFO, ("/proc/self/cgroup", "0::/user.slice\n")]);
        assert_eq!((read.total, read.available), (Some(16 * G), Some(8 * G)));
        assert_eq!(host(&[]), Host::default());
        assert_eq!(host(&[("/proc/meminfo", "nothing here")]), Host::default());
    }

    #[test]
    fn the_tightest_group_on_the_way_to_the_root_counts_less_what_it_uses_but_for_files() {
        let read = host(&[
            INFO,
            ("/proc/self/cgroup", "1:name=systemd:/x\n0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "4294967296\n"),
            ("/sys/fs/cgroup/a/memory.current", "3221225472\n"),
            (
                "/sys/fs/cgroup/a/memory.stat",
                "anon 1\ninactive_file 1073741824\nactive_file 1073741824\n",
            ),
            ("/sys/fs/cgroup/memory.max", "8589934592\n"),
        ]);
        assert_eq!((read.total, read.available), (Some(4 * G), Some(3 * G)));
    }

    #[test]
    fn in_a_container_the_limit_lies_at_the_root_in_both_versions() {
        let two = host(&[
            INFO,
            ("/proc/self/cgroup", "0::/docker/abc\n"),
            ("/sys/fs/cgroup/memory.max", "2147483648\n"),
            ("/sys/fs/cgroup/memory.current", "1073741824\n"),
        ]);
        assert_eq!((two.total, two.available), (Some(2 * G), Some(G)));
        let one = host(&[
            INFO,
            (
                "/proc/self/cgroup",
                "7:cpu,cpuacct:/docker/abc\n5:memory:/docker/abc\n",
            ),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3221225472\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "2147483648\n"),
            (
                "/sys/fs/cgroup/memory/memory.stat",
                "total_inactive_file 1073741824\n",
            ),
        ]);
        assert_eq!((one.total, one.available), (Some(3 * G), Some(2 * G)));
    }

    #[test]
    fn version_1_without_a_limit_changes_nothing() {
        let read = host(&[
            INFO,
            ("/proc/self/cgroup", "5:memory:/\n"),
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "4294967296\n"),
        ]);
        assert_eq!((read.total, read.available), (Some(16 * G), Some(8 * G)));
    }

    #[test]
    fn the_default_budget_is_half_of_what_the_weights_leave() {
        let cpu = |available| Readings {
            mlx_limit: Some(12 * G),
            host: Host {
                total: Some(16 * G),
                available: Some(available),
            },
            ..Readings::default()
        };
        assert_eq!(cpu(15 * G).total(), 12 * G);
        assert_eq!(cpu(15 * G).default_kv_budget(2 * G), 5 * G);
        assert_eq!(cpu(15 * G).default_kv_budget(20 * G), 0);
        assert_eq!(cpu(4 * G).default_kv_budget(2 * G), 2 * G, "others hold the rest");
        let cached = Readings {
            mlx_cache: G,
            ..cpu(3 * G)
        };
        assert_eq!(
            cached.default_kv_budget(2 * G),
            2 * G,
            "what MLX would reuse is free"
        );
    }

    #[test]
    fn on_metal_it_is_of_the_recommended_working_set() {
        let metal = Readings {
            mlx_limit: Some(18 * G),
            working_set: Some(12 * G),
            ..Readings::default()
        };
        assert_eq!((metal.total(), metal.default_kv_budget(4 * G)), (12 * G, 4 * G));
    }

    #[test]
    fn on_cuda_it_is_of_what_is_free_on_the_device() {
        let cuda = |free| Readings {
            mlx_limit: Some(76 * G),
            gpu_total: Some(80 * G),
            gpu_free: Some(free),
            ..Readings::default()
        };
        assert_eq!(cuda(78 * G).default_kv_budget(16 * G), 30 * G);
        assert_eq!(cuda(20 * G).default_kv_budget(16 * G), 10 * G);
    }

    #[test]
    fn where_nothing_is_known_there_is_some() {
        assert_eq!(Readings::default().default_kv_budget(0), 4 * G);
    }
}
