//! A model hub of the test's own: what it says of a repository, and a second server that keeps the bytes.

use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mlx_chat::hub::{Cancel, HubError, Progress, Pulled};
use serde_json::json;
use sha1::{Digest, Sha1};

use crate::world::*;

pub const ID: &str = "org/tiny";
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A repository at one commit.
#[derive(Clone)]
pub struct Repo {
    pub commit: String,
    pub files: Vec<(String, Vec<u8>)>,
}

impl Repo {
    pub fn new(files: &[(&str, &[u8])]) -> Self {
        let owned = |(path, bytes): &(&str, &[u8])| (path.to_string(), bytes.to_vec());
        Self {
            commit: COMMIT.into(),
            files: files.iter().map(owned).collect(),
        }
    }

    /// A folder with two shards of weights, and with files that nobody needs.
    pub fn folder() -> Self {
        let index = br#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#;
        Self::new(&[
            ("README.md", b"# Tiny"),
            ("config.json", br#"{"model_type": "llama"}"#),
            ("tokenizer.json", b"{}"),
            ("model.safetensors.index.json", index),
            ("model-00001-of-00002.safetensors", &noise(1, 200_000)),
            ("model-00002-of-00002.safetensors", &noise(2, 100_000)),
            ("pytorch_model.bin", &noise(3, 1000)),
        ])
    }

    /// Two quantizations.
    pub fn gguf() -> Self {
        Self::new(&[
            ("README.md", b"# Tiny"),
            ("tiny-Q8_0.gguf", &noise(4, 3000)),
            ("tiny-Q4_K_M.gguf", &noise(5, 2000)),
        ])
    }

    pub fn bytes(&self, path: &str) -> &[u8] {
        let found = self.files.iter().find(|(name, _)| name == path);
        &found.unwrap_or_else(|| panic!("no {path}")).1
    }

    /// What the hub names a file's bytes by, and whether they lie elsewhere.
    pub fn tag(&self, path: &str) -> (String, bool) {
        let bytes = self.bytes(path);
        if path.ends_with(".safetensors") || path.ends_with(".gguf") || path.ends_with(".bin") {
            return (sha256(bytes), true);
        }
        let mut hash = Sha1::new_with_prefix(format!("blob {}\0", bytes.len()));
        hash.update(bytes);
        let hex = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        (hex, false)
    }
}

/// Bytes that differ by `seed`.
pub fn noise(seed: u32, count: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// What stands before the hub's own answers: says whether it answered itself.
type Before = dyn Fn(&Request, &mut TcpStream) -> bool + Send + Sync;

/// The hub and where it keeps large files.
pub struct HubServer {
    pub repo: Repo,
    pub hub: Server,
    pub cdn: Server,
}

impl HubServer {
    pub fn start(repo: Repo) -> Self {
        let sent = repo.clone();
        Self::with(
            repo,
            |_, _| false,
            move |_, request, stream| send_blob(&sent, request, stream),
        )
    }

    /// With something before its answers; the keeper of the bytes answers by `cdn`, which also gets a count from 0.
    pub fn with(
        repo: Repo,
        before: impl Fn(&Request, &mut TcpStream) -> bool + Send + Sync + 'static,
        cdn: impl Fn(usize, &Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let count = AtomicUsize::new(0);
        let cdn =
            Server::start(move |request, stream| cdn(count.fetch_add(1, Ordering::SeqCst), request, stream));
        let (keeper, told, before) = (cdn.url(""), repo.clone(), Arc::new(before) as Arc<Before>);
        let hub = Server::start(move |request, stream| {
            if !before(request, stream) {
                answer(&told, &keeper, request, stream);
            }
        });
        Self { repo, hub, cdn }
    }

    /// With something before its answers.
    pub fn before(
        repo: Repo,
        before: impl Fn(&Request, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        let sent = repo.clone();
        Self::with(repo, before, move |_, request, stream| {
            send_blob(&sent, request, stream)
        })
    }

    /// A world that knows this hub, with a shared cache of its own.
    pub fn world(&self) -> World {
        let mut world = World::new();
        world.var("HF_ENDPOINT", &self.hub.url(""));
        let cache = cache_of(&world);
        world.var("HF_HUB_CACHE", cache.to_str().unwrap());
        world
    }

    /// Requests for the bytes of a file, to the hub or to the keeper.
    pub fn downloads(&self) -> usize {
        let gets = |server: &Server| {
            let all = server.requests();
            all.iter()
                .filter(|request| request.method == "GET" && !request.target.starts_with("/api/"))
                .filter(|request| server.address == self.cdn.address || !is_large(&request.target))
                .count()
        };
        gets(&self.hub) + gets(&self.cdn)
    }
}

fn is_large(target: &str) -> bool {
    target.ends_with(".safetensors") || target.ends_with(".gguf")
}

/// The hub's own answers.
pub fn answer(repo: &Repo, cdn: &str, request: &Request, stream: &mut TcpStream) {
    if request.target == format!("/api/models/{ID}/revision/main?blobs=true") {
        let siblings: Vec<_> = repo
            .files
            .iter()
            .map(|(path, _)| json!({"rfilename": path}))
            .collect();
        let body = json!({"id": ID, "sha": repo.commit, "siblings": siblings}).to_string();
        return respond(
            stream,
            "200 OK",
            "Content-Type: application/json\r\n",
            body.as_bytes(),
        );
    }
    let path = request
        .target
        .strip_prefix(&format!("/{ID}/resolve/{}/", repo.commit));
    let Some(path) = path.filter(|path| repo.files.iter().any(|(name, _)| name == path)) else {
        return respond(stream, "404 Not Found", "X-Error-Code: EntryNotFound\r\n", b"");
    };
    let ((tag, elsewhere), bytes) = (repo.tag(path), repo.bytes(path));
    let commit = &repo.commit;
    if elsewhere {
        let length = bytes.len();
        let headers = format!(
            "X-Repo-Commit: {commit}\r\nX-Linked-Etag: \"{tag}\"\r\nX-Linked-Size: {length}\r\nETag: \"x\"\r\n\
             Location: {cdn}/{path}?signed=secret\r\nContent-Length: 0\r\n"
        );
        respond(stream, "302 Found", &headers, b"");
    } else {
        let headers = format!(
            "X-Repo-Commit: {commit}\r\nETag: \"{tag}\"\r\nContent-Length: {}\r\n",
            bytes.len()
        );
        let body = if request.method == "HEAD" { &b""[..] } else { bytes };
        respond(stream, "200 OK", &headers, body);
    }
}

/// The keeper's answer.
pub fn send_blob(repo: &Repo, request: &Request, stream: &mut TcpStream) {
    send_file(request, stream, repo.bytes(blob_name(request)));
}

pub fn blob_name(request: &Request) -> &str {
    request.target.trim_start_matches('/').split('?').next().unwrap()
}

pub fn cache_of(world: &World) -> PathBuf {
    world.folder.path().join("shared/hub")
}

pub fn repo_folder(world: &World) -> PathBuf {
    cache_of(world).join("models--org--tiny")
}

pub fn pull(world: &World, name: &str) -> (Result<Pulled, HubError>, Vec<Progress>) {
    let mut told = Vec::new();
    let result = world
        .hub()
        .pull(Some(name), &mut |step| told.push(step), &Cancel::new());
    (result, told)
}

pub fn pull_ok(world: &World, name: &str) -> Pulled {
    pull(world, name).0.unwrap_or_else(|error| panic!("{error}"))
}

pub fn pull_err(world: &World, name: &str) -> String {
    let error = pull(world, name).0.expect_err("the pull should fail").to_string();
    assert!(!error.contains("secret"), "{error}");
    error
}
