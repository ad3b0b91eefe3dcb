//! Another model takes the place of the one before in one process, by the memory that both take.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use clap::Parser;
use mlx_chat::cli::Cli;
use mlx_chat::cli::library::Library;
use mlx_chat::config::paths::Paths;
use mlx_chat::engine::memory::mlx_memory;
use mlx_chat::nn::kernels::Kernels;
use mlx_chat::ui::models::{Facts, Fetching, Inventory, Models, NotFetched, NotOpened, Opened};

use super::changing::on_shelf;
use super::model::with_tokenizer;
use super::program::Program;

/// What models take in this process: MLX's memory, and packed weights. No other test of this file's has any.
fn held() -> u64 {
    mlx_memory().active + Kernels::held()
}

/// The program's own models, of which is noted what memory was taken when they were opened.
struct Watched {
    library: Library,
    opened: Mutex<Vec<(String, u64)>>,
}

impl Models for Watched {
    fn list(&self) -> Result<Inventory, String> {
        self.library.list()
    }

    fn inspect(&self, name: &str) -> Option<Facts> {
        self.library.inspect(name)
    }

    fn is_here(&self, name: &str) -> Result<bool, String> {
        self.library.is_here(name)
    }

    fn remove(&self, name: &str) -> Result<String, String> {
        self.library.remove(name)
    }

    fn clear_prompts(&self) -> Result<String, String> {
        self.library.clear_prompts()
    }

    fn fetch(
        &self,
        name: &str,
        tell: &mut dyn FnMut(Fetching),
        cancel: &Arc<AtomicBool>,
    ) -> Result<(), NotFetched> {
        self.library.fetch(name, tell, cancel)
    }

    fn open(&self, name: &str) -> Result<Opened, NotOpened> {
        self.opened.lock().unwrap().push((name.to_owned(), held()));
        self.library.open(name)
    }
}

/// Puts a tiny model of the oracle's into the models folder, with a tokenizer.
fn install(program: &Program, models: &Path, name: &str, oracle: &str) {
    let talks = with_tokenizer(program);
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/oracle")
        .join(oracle);
    let folder = models.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    for (from, file) in [
        (oracle.clone(), "config.json"),
        (oracle, "model.safetensors"),
        (talks.clone().into(), "tokenizer.json"),
        (talks.into(), "tokenizer_config.json"),
    ] {
        std::fs::copy(from.join(file), folder.join(file)).unwrap();
    }
}

#[test]
fn a_model_gives_its_memory_back_before_the_next_one_is_opened() {
    let program = Program::new();
    let paths = Paths::from_env(|name| Some(program.path(&name.to_lowercase()).into())).unwrap();
    install(&program, &paths.models(), "one", "llama");
    install(&program, &paths.models(), "two", "qwen3-4bit");
    let cli = Cli::parse_from(["mlx-chat", "-m", "one", "--threads=1", "--device=cpu"]);
    let watched = Arc::new(Watched {
        library: Library::new(&cli, &paths).unwrap(),
        opened: Mutex::default(),
    });
    on_shelf(watched, "one", |stand| async move {
        let mut least = u64::MAX;
        for (name, told) in [
            ("one", "ready"),
            ("two", "two answers from now on"),
            ("one", "one answers from now on"),
        ] {
            if told != "ready" {
                stand.choose(name).await;
            }
            stand.shows(told).await;
            let prompt = format!("to {}", stand.shelf.opened.lock().unwrap().len());
            stand.ask(&prompt).await;
            let answered = |screen: &str| {
                let after = screen.rsplit_once(&format!("› {prompt}"));
                after.is_some_and(|(_, after)| after.contains(" tokens in "))
            };
            stand.until("it has answered", answered).await;
            assert!(Kernels::held() > 0, "weights are packed");
            least = least.min(held());
        }
        let opened = stand.shelf.opened.lock().unwrap().clone();
        let names: Vec<&str> = opened.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["one", "two", "one"]);
        let before = opened[0].1;
        for (name, held) in &opened[1..] {
            assert!(
                held.saturating_sub(before) * 20 < least,
                "{held} bytes were taken when {name} was opened, {before} at first, at least {least} with a model"
            );
        }
    });
}
