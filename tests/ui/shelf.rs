//! Models that a test gives: a list, engines that do what it says, and downloads that it carries out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use mlx_chat::chat::Sampling;
use mlx_chat::engine::telemetry::{Snapshot, StepSample};
use mlx_chat::engine::{Consumer, Engine, Request, RequestId, SubmitError};
use mlx_chat::ui::models::{
    Facts, Fetching, Fit, Inventory, Listed, Models, NotFetched, NotOpened, Opened, Place,
};
use tokio::sync::watch;

use super::stand::Puppet;

/// What a download does next.
pub enum Delivery {
    Progress(u64, u64),
    End(Result<(), String>),
}

/// Models by name, with the state in which their engines begin.
pub struct Shelf {
    pub inventory: Mutex<Inventory>,
    pub engines: BTreeMap<String, Arc<Puppet>>,
    pub facts: Mutex<BTreeMap<String, Facts>>,
    /// What was done, in order.
    pub log: Arc<Mutex<Vec<String>>>,
    pub deliveries: (mpsc::Sender<Delivery>, Mutex<mpsc::Receiver<Delivery>>),
    /// While it is set, no engine closes.
    pub shut: Arc<AtomicBool>,
}

pub fn listed(name: &str, place: Place) -> Listed {
    Listed {
        name: name.into(),
        place,
        bytes: Some(98 << 20),
        unfinished: 0,
        default: false,
        in_use: false,
        link: false,
        facts: None,
    }
}

pub fn facts(fit: Fit) -> Facts {
    Facts {
        quantization: "Q4_K".into(),
        context: 8192,
        weights: 98 << 20,
        kv: 180 << 20,
        free: 12 << 30,
        fit,
        template: Some(true),
    }
}

impl Shelf {
    pub fn new(engines: &[(&str, Snapshot)]) -> Arc<Self> {
        let models = engines.iter().map(|(name, _)| listed(name, Place::Installed));
        let inventory = Inventory {
            models: models.collect(),
            ..Inventory::default()
        };
        let puppet =
            |(name, snapshot): &(&str, Snapshot)| ((*name).to_owned(), Puppet::new(snapshot.clone()));
        let (sender, receiver) = mpsc::channel();
        Arc::new(Self {
            inventory: Mutex::new(inventory),
            engines: engines.iter().map(puppet).collect(),
            facts: Mutex::default(),
            log: Arc::default(),
            deliveries: (sender, Mutex::new(receiver)),
            shut: Arc::default(),
        })
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    fn note(&self, what: String) {
        self.log.lock().unwrap().push(what);
    }

    fn is_remote(&self, name: &str) -> bool {
        let inventory = self.inventory.lock().unwrap();
        let remote = |model: &Listed| model.name == name && model.place == Place::Remote;
        inventory.models.iter().any(remote)
    }
}

/// A puppet that tells when it is closed.
struct Seated {
    name: String,
    puppet: Arc<Puppet>,
    log: Arc<Mutex<Vec<String>>>,
    shut: Arc<AtomicBool>,
}

impl Engine for Seated {
    fn submit(&self, request: Request, consumer: Box<dyn Consumer>) -> Result<RequestId, SubmitError> {
        self.puppet.submit(request, consumer)
    }

    fn cancel(&self, id: RequestId) {
        self.puppet.cancel(id);
    }

    fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.puppet.snapshots()
    }

    fn drain_samples(&self, out: &mut Vec<StepSample>) {
        self.puppet.drain_samples(out);
    }

    fn close(&self) {
        while self.shut.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        self.log.lock().unwrap().push(format!("close {}", self.name));
    }
}

impl Models for Shelf {
    fn list(&self) -> Result<Inventory, String> {
        Ok(self.inventory.lock().unwrap().clone())
    }

    fn inspect(&self, name: &str) -> Option<Facts> {
        self.facts.lock().unwrap().get(name).cloned()
    }

    fn is_here(&self, name: &str) -> Result<bool, String> {
        let inventory = self.inventory.lock().unwrap();
        let found = inventory.models.iter().find(|model| model.name == name);
        found
            .map(|model| model.place != Place::Remote)
            .ok_or_else(|| format!("there is no model {name}"))
    }

    fn remove(&self, name: &str) -> Result<String, String> {
        self.note(format!("remove {name}"));
        let mut inventory = self.inventory.lock().unwrap();
        inventory.models.retain(|model| model.name != name);
        Ok(format!("deleted {name}"))
    }

    fn clear_prompts(&self) -> Result<String, String> {
        self.note("clear prompts".into());
        let mut inventory = self.inventory.lock().unwrap();
        (inventory.prompt_files, inventory.prompt_bytes) = (0, 0);
        Ok("deleted the prompt cache's files".into())
    }

    fn fetch(
        &self,
        name: &str,
        tell: &mut dyn FnMut(Fetching),
        cancel: &Arc<AtomicBool>,
    ) -> Result<(), NotFetched> {
        self.note(format!("fetch {name}"));
        let deliveries = self.deliveries.1.lock().unwrap();
        loop {
            if cancel.load(Ordering::Acquire) {
                return Err(NotFetched(format!(
                    "the download of {name} was stopped, it is kept"
                )));
            }
            match deliveries.recv_timeout(Duration::from_millis(1)) {
                Err(_) => {}
                Ok(Delivery::Progress(done, total)) => tell(Fetching {
                    stage: "downloading".into(),
                    done,
                    total,
                }),
                Ok(Delivery::End(end)) => {
                    if end.is_ok() {
                        let mut inventory = self.inventory.lock().unwrap();
                        let mut models = inventory.models.iter_mut();
                        if let Some(model) = models.find(|model| model.name == name) {
                            model.place = Place::Installed;
                        }
                    }
                    return end.map_err(NotFetched);
                }
            }
        }
    }

    fn open(&self, name: &str) -> Result<Opened, NotOpened> {
        self.note(format!("open {name}"));
        if self.is_remote(name) {
            return Err(NotOpened::Remote);
        }
        let puppet = self.engines.get(name);
        let puppet = puppet.ok_or_else(|| NotOpened::Failed("its file is damaged".into()))?;
        let engine = Seated {
            name: name.to_owned(),
            puppet: Arc::clone(puppet),
            log: Arc::clone(&self.log),
            shut: Arc::clone(&self.shut),
        };
        Ok(Opened {
            engine: Arc::new(engine),
            recommended: Sampling::default(),
        })
    }
}
