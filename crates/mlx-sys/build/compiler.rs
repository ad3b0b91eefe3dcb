//! The C++ compiler: found, probed, and its archives kept in the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::Cache;
use crate::failure::{Failure, Outcome, io_failure};
use crate::key::{self, Key};
use crate::mlx::Mlx;
use crate::mlx_c::MlxC;
use crate::target::Target;

/// The oldest macOS whose C++ library has all that mlx-c uses, and that MLX is published for.
const MACOS_MINIMUM: &str = "14.0";

/// Bump when `archive` passes other flags.
const SETTINGS: &str = "1";

/// A working C++20 compiler.
pub struct Compiler {
    base: cc::Build,
    identity: String,
    has_format: bool,
    native: PathBuf,
}

/// A static library to make: its name and the sources.
pub struct Archive {
    /// Without `lib` and `.a`.
    pub name: &'static str,
    /// C++ files.
    pub sources: Vec<PathBuf>,
    /// Our own files that these include.
    pub headers: Vec<PathBuf>,
}

impl Compiler {
    /// Finds the compiler that cc would use, and checks that it speaks C++20. `native` is our folder of C++ sources.
    pub fn find(cache: &Cache, target: &Target, native: &Path) -> Outcome<Self> {
        let mut base = cc::Build::new();
        base.cpp(true)
            .std("c++20")
            .opt_level(2)
            .debug(false)
            .pic(true)
            .warnings(false)
            .extra_warnings(false)
            .cargo_metadata(false)
            .flag("-w");
        if target.is_macos() {
            let asked = std::env::var("MACOSX_DEPLOYMENT_TARGET").ok();
            let version = asked.filter(|v| crate::backend::major(v) >= Some(14));
            let version = version.unwrap_or_else(|| MACOS_MINIMUM.to_owned());
            base.env("MACOSX_DEPLOYMENT_TARGET", version);
        }
        let tool = base
            .try_get_compiler()
            .map_err(|e| no_compiler("(none found)", &e.to_string()))?;
        let name = tool.path().display().to_string();
        let version = Command::new(tool.path())
            .arg("--version")
            .output()
            .map_err(|e| no_compiler(&name, &e.to_string()))?;
        let identity = Key::new()
            .part("path", tool.path().as_os_str().as_encoded_bytes())
            .part("version", &version.stdout)
            .part("arguments", format!("{:?}", tool.args()))
            .part("target", &target.triple)
            .finish();
        let scratch = cache.scratch("probe")?;
        probe(&tool, &scratch.0, CONCEPTS).map_err(|said| no_compiler(&name, &said))?;
        let has_format = probe(&tool, &scratch.0, FORMAT).is_ok();
        Ok(Self {
            base,
            identity,
            has_format,
            native: native.to_owned(),
        })
    }

    /// The folder with the archive, compiled if the cache hasn't got it for this compiler, MLX and sources.
    pub fn archive(&self, cache: &Cache, archive: &Archive, mlx: &Mlx, mlx_c: &MlxC) -> Outcome<PathBuf> {
        let prelude = self.native.join("prelude.h");
        let mut key = Key::new()
            .part("archive", archive.name)
            .part("settings", SETTINGS)
            .part("compiler", &self.identity)
            .part("format", [u8::from(self.has_format)])
            .part("mlx", &mlx.identity)
            .part("mlx-c", &mlx_c.checksum)
            .part("prelude", key::file_sha256(&prelude)?);
        for file in archive.sources.iter().chain(&archive.headers) {
            if file.starts_with(&self.native) {
                key = key.part("source", key::file_sha256(file)?);
            }
        }
        let name = format!("{}-{}", archive.name, key.finish());
        let file = format!("lib{}.a", archive.name);
        cache.folder("lib", &name, &file, |folder| {
            let objects = cache.scratch(archive.name)?;
            let mut build = self.base.clone();
            build
                .out_dir(&objects.0)
                .flag("-isystem")
                .flag(mlx.include.as_os_str())
                .include(&mlx_c.root)
                .include(&self.native)
                // Messages of mlx-c name its files: as mlx-c/…, not by this machine's folders.
                .flag(format!("-fmacro-prefix-map={}=mlx-c", mlx_c.root.display()))
                .flag("-include")
                .flag(prelude.as_os_str())
                .files(&archive.sources);
            if self.has_format {
                build.define("MLX_SYS_HAS_STD_FORMAT", None);
            }
            build.try_compile(archive.name).map_err(|e| {
                Failure::new(format!(
                    "compiling {} failed: {e}. MLX {} needs GCC 11, Clang 16 or Xcode 15, or newer: install one, or name another by CXX",
                    archive.name,
                    crate::mlx::VERSION
                ))
            })?;
            let made = objects.0.join(&file);
            fs::copy(&made, folder.join(&file)).map_err(|e| io_failure("keep", &made, &e))?;
            Ok(())
        })
    }
}

/// Needs C++20 in language and library.
const CONCEPTS: &str = "#include <concepts>\n#include <span>\n#include <compare>\n\
    struct S { int i; auto operator<=>(const S&) const = default; };\n\
    template <std::integral T> T twice(std::span<const T> v) { return 2 * v[0]; }\n\
    int f(const int* p) { return twice<int>({p, 1}) + (S{1} < S{2}); }\n";

/// Needs a working `<format>`, which GCC has from 13 on.
const FORMAT: &str = "#include <format>\n#include <string>\nstd::string f(int n) { return std::format(\"{} of {}\", n, \"x\"); }\n";

/// Compiles a small text; gives the compiler's first complaint if that fails.
fn probe(tool: &cc::Tool, folder: &Path, text: &str) -> Result<(), String> {
    let source = folder.join("probe.cpp");
    fs::write(&source, text).map_err(|e| e.to_string())?;
    let output = tool
        .to_command()
        .arg("-c")
        .arg(&source)
        .arg("-o")
        .arg(folder.join("probe.o"))
        .output()
        .map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().find(|l| l.contains("error")).or(said.lines().next());
    Err(first.map_or_else(|| output.status.to_string(), str::to_owned))
}

fn no_compiler(name: &str, said: &str) -> Failure {
    Failure::new(format!(
        "the C++ compiler `{name}` can't compile C++20 ({said}): install GCC 11, Clang 16 or Xcode 15, or newer \
         (packages g++ or clang; on macOS `xcode-select --install`), or name a compiler by the variable CXX"
    ))
}
