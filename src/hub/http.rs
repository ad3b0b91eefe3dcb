//! Our HTTP client: a request runs on its own thread, so that a server or resolver that hangs never delays a cancel.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use ureq::http::{HeaderMap, header};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use super::address::{Address, Credentials, Origin};
use super::cancel::{Cancel, LOOK_EVERY};
use super::error::NetError;
use super::proxy::Proxies;

const USER_AGENT: &str = concat!("mlx-chat/", env!("CARGO_PKG_VERSION"));
/// Bytes of a piece handed from the request's thread.
const PIECE: usize = 64 * 1024;
/// Pieces that may wait between the request's thread and the reader.
const PIECES_WAITING: usize = 16;
const MAX_REDIRECTS: usize = 10;
/// Where systems keep the certificates they trust, tried in order when no setting names any.
const SYSTEM_BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// What says who asks.
#[derive(Clone)]
pub(super) enum Login {
    /// User and password.
    Basic(Credentials),
    /// A token (RFC 6750).
    Bearer(String),
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login(***)")
    }
}

impl Login {
    /// The value of an `Authorization` header.
    fn header(&self) -> String {
        match self {
            Self::Basic(credentials) => credentials.basic(),
            Self::Bearer(token) => format!("Bearer {token}"),
        }
    }
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Get,
    Head,
}

/// Makes GET and HEAD requests by the user's settings.
#[derive(Debug)]
pub(super) struct Client {
    /// No socket is opened while this is set.
    pub offline: bool,
    /// Which proxy to use.
    pub proxies: Proxies,
    /// PEM file or folder of the certificates to trust; none means the system's.
    pub cert: Option<PathBuf>,
    /// `host` or `host:port` whose certificate isn't checked.
    pub trusted: Vec<String>,
    /// What says who asks, by whom it is for: nobody else gets it, on redirects neither.
    pub logins: Vec<(Origin, Login)>,
    /// How long a server may send nothing.
    pub patience: Duration,
    /// Read once, at the first `https` request.
    pub roots: OnceLock<Result<RootCerts, (PathBuf, String)>>,
}

/// An answer whose body is still to come.
#[derive(Debug)]
pub(super) struct Response {
    /// Where it came from in the end.
    pub address: Address,
    /// HTTP status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    pieces: Receiver<Piece>,
}

/// What the request's thread sends.
#[derive(Debug)]
enum Piece {
    Head(u16, HeaderMap),
    Data(Vec<u8>),
    End,
    Failed(NetError),
}

impl Client {
    /// Asks for `address`, following redirects; any answer but a redirect is returned, errors of the server, too.
    pub fn get(
        &self,
        address: &Address,
        headers: &[(&str, &str)],
        cancel: &Cancel,
    ) -> Result<Response, NetError> {
        self.follow(Method::Get, address, headers, cancel, |_, _| true)
    }

    /// Asks for the head of `address` only. Redirects are followed as long as they stay with the same host and
    /// `answered` doesn't find what it looks for; the answer may so be a redirect.
    pub fn head(
        &self,
        address: &Address,
        headers: &[(&str, &str)],
        cancel: &Cancel,
        answered: impl Fn(&Response) -> bool,
    ) -> Result<Response, NetError> {
        let origin = address.origin();
        self.follow(Method::Head, address, headers, cancel, |response, next| {
            !answered(response) && next.origin() == origin
        })
    }

    fn follow(
        &self,
        method: Method,
        address: &Address,
        headers: &[(&str, &str)],
        cancel: &Cancel,
        follows: impl Fn(&Response, &Address) -> bool,
    ) -> Result<Response, NetError> {
        let mut address = address.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.request(method, address, headers, cancel)?;
            let target = match response.status {
                301 | 302 | 303 | 307 | 308 => response.header(header::LOCATION.as_str()).map(str::to_string),
                _ => None,
            };
            let Some(target) = target else { return Ok(response) };
            let from = response.address.clone();
            let refused = |cause: String| NetError::Redirect {
                address: from.to_string(),
                cause,
            };
            let next = from.join(&target).map_err(refused)?;
            if !follows(&response, &next) {
                return Ok(response);
            }
            if next.scheme() == "file" || (from.scheme() == "https" && next.scheme() != "https") {
                return Err(refused(format!("{next} is less safe")));
            }
            address = next;
        }
        Err(NetError::Redirect {
            address: address.to_string(),
            cause: format!("after {MAX_REDIRECTS} redirects"),
        })
    }

    fn request(
        &self,
        method: Method,
        address: Address,
        headers: &[(&str, &str)],
        cancel: &Cancel,
    ) -> Result<Response, NetError> {
        if cancel.is_cancelled() {
            return Err(NetError::Interrupted);
        }
        if self.offline {
            return Err(NetError::Offline(address.host().to_string()));
        }
        let agent = self.agent_for(&address)?;
        let mut request = match method {
            Method::Get => agent.get(address.wire()),
            Method::Head => agent.head(address.wire()),
        };
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(login) = self.login_for(&address) {
            request = request.header(header::AUTHORIZATION, login.header());
        }
        let (send, pieces) = sync_channel(PIECES_WAITING);
        let proxy = self.proxies.choose(&address).ok().flatten();
        let peer = proxy.unwrap_or(&address).host().to_string();
        let blame = Blame {
            address: address.clone(),
            peer,
            patience: self.patience,
        };
        let work = move || run(request, &blame, &send);
        std::thread::Builder::new()
            .name("http".into())
            .spawn(work)
            .map_err(|error| NetError::Unreachable {
                address: address.to_string(),
                cause: format!("no thread could be started: {error}"),
            })?;
        match next_piece(&pieces, &address, cancel)? {
            Piece::Head(status, headers) => Ok(Response {
                address,
                status,
                headers,
                pieces,
            }),
            Piece::Failed(error) => Err(error),
            Piece::Data(_) | Piece::End => Err(broken(&address, "the answer has no head")),
        }
    }

    fn login_for(&self, address: &Address) -> Option<Login> {
        let known = || {
            self.logins
                .iter()
                .find(|(origin, _)| *origin == address.origin())
                .map(|(_, login)| login)
        };
        let own = address.credentials().cloned().map(Login::Basic);
        own.or_else(|| known().cloned())
    }

    fn agent_for(&self, address: &Address) -> Result<ureq::Agent, NetError> {
        let patience = Some(self.patience);
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(USER_AGENT)
            .timeout_resolve(patience)
            .timeout_connect(patience)
            .timeout_send_request(patience)
            .timeout_recv_response(patience)
            .timeout_per_read(patience)
            .proxy(None);
        let proxy_failed = |proxy: String, cause: String| NetError::Proxy { proxy, cause };
        let chosen = self
            .proxies
            .choose(address)
            .map_err(|why| proxy_failed("in your settings".into(), why))?;
        if let Some(proxy) = chosen {
            let made = proxy_of(proxy).map_err(|error| proxy_failed(proxy.to_string(), error.to_string()))?;
            config = config.proxy(Some(made));
        }
        if address.scheme() == "https" || chosen.is_some_and(|proxy| proxy.scheme() == "https") {
            let unchecked = self.trusted.iter().any(|host| {
                *host == address.host() || *host == format!("{}:{}", address.host(), address.port())
            });
            config = config.tls_config(
                TlsConfig::builder()
                    .root_certs(self.roots()?)
                    .disable_verification(unchecked)
                    .build(),
            );
        }
        Ok(config.build().new_agent())
    }

    fn roots(&self) -> Result<RootCerts, NetError> {
        let read = || match &self.cert {
            Some(path) => read_certificates(path).map_err(|cause| (path.clone(), cause)),
            None => Ok(SYSTEM_BUNDLES
                .iter()
                .find_map(|path| read_certificates(Path::new(path)).ok())
                .unwrap_or(RootCerts::WebPki)),
        };
        let roots = self.roots.get_or_init(read).clone();
        roots.map_err(|(path, cause)| NetError::Certificates { path, cause })
    }
}

impl Response {
    /// A header's value, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The next bytes of the body; none at its end.
    pub fn next(&self, cancel: &Cancel) -> Result<Option<Vec<u8>>, NetError> {
        match next_piece(&self.pieces, &self.address, cancel)? {
            Piece::Data(bytes) => Ok(Some(bytes)),
            Piece::End => Ok(None),
            Piece::Failed(error) => Err(error),
            Piece::Head(..) => Err(broken(&self.address, "a second head came")),
        }
    }

    /// The whole body as text, at most `limit` bytes.
    pub fn text(&self, limit: u64, cancel: &Cancel) -> Result<String, NetError> {
        let mut body = Vec::new();
        while let Some(bytes) = self.next(cancel)? {
            body.extend_from_slice(&bytes);
            if body.len() as u64 > limit {
                return Err(NetError::TooLarge {
                    address: self.address.to_string(),
                    limit,
                });
            }
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// An error unless the status is one of success.
    pub fn success(self) -> Result<Self, NetError> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let retry_after = self
            .header("retry-after")
            .and_then(|value| retry_after(value, jiff::Timestamp::now()));
        Err(NetError::Status {
            address: self.address.to_string(),
            status: self.status,
            retry_after,
        })
    }
}

/// Waits for the request's thread, looking at `cancel` meanwhile. The thread itself gives up after the client's patience.
fn next_piece(pieces: &Receiver<Piece>, address: &Address, cancel: &Cancel) -> Result<Piece, NetError> {
    loop {
        if cancel.is_cancelled() {
            return Err(NetError::Interrupted);
        }
        match pieces.recv_timeout(LOOK_EVERY) {
            Ok(piece) => return Ok(piece),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(broken(address, "the request ended without an answer"));
            }
        }
    }
}

fn broken(address: &Address, cause: &str) -> NetError {
    NetError::Broken {
        address: address.to_string(),
        cause: cause.into(),
    }
}

/// Runs one request to its end, or until nobody listens any more.
fn run(request: ureq::RequestBuilder<ureq::typestate::WithoutBody>, blame: &Blame, send: &SyncSender<Piece>) {
    let response = match request.call() {
        Ok(response) => response,
        // Nobody listens any more: nothing to tell.
        Err(error) => return send.send(Piece::Failed(blame.on(error))).unwrap_or_default(),
    };
    let (head, body) = response.into_parts();
    if send
        .send(Piece::Head(head.status.as_u16(), head.headers))
        .is_err()
    {
        return;
    }
    let mut reader = body.into_reader();
    let mut buffer = vec![0; PIECE];
    loop {
        let piece = match reader.read(&mut buffer) {
            Ok(0) => Piece::End,
            Ok(count) => Piece::Data(buffer.get(..count).unwrap_or_default().to_vec()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => Piece::Failed(blame.on_io(error)),
        };
        let last = !matches!(piece, Piece::Data(_));
        if send.send(piece).is_err() || last {
            return;
        }
    }
}

/// Turns what ureq says into our errors, which show no secrets.
struct Blame {
    address: Address,
    /// The host connected to: the address's own, or the proxy's.
    peer: String,
    patience: Duration,
}

impl Blame {
    fn on(&self, error: ureq::Error) -> NetError {
        let address = self.address.to_string();
        match error {
            ureq::Error::HostNotFound => NetError::NoHost(self.peer.clone()),
            ureq::Error::Timeout(_) => NetError::Stalled {
                address,
                after: self.patience,
            },
            ureq::Error::Io(error) => self.on_io(error),
            ureq::Error::ConnectionFailed => NetError::Unreachable {
                address,
                cause: "it was refused".into(),
            },
            ureq::Error::ConnectProxyFailed(cause) => NetError::Proxy {
                proxy: format!("for {address}"),
                cause,
            },
            error @ (ureq::Error::Tls(_) | ureq::Error::Pem(_) | ureq::Error::Rustls(_)) => NetError::Tls {
                address,
                cause: error.to_string(),
            },
            // This one's text holds the whole address.
            ureq::Error::BadUri(_) => NetError::Broken {
                address,
                cause: "the address is malformed".into(),
            },
            error => NetError::Broken {
                address,
                cause: error.to_string(),
            },
        }
    }

    fn on_io(&self, error: std::io::Error) -> NetError {
        use std::io::ErrorKind;
        let address = self.address.to_string();
        let error = match error.downcast::<ureq::Error>() {
            Ok(inner) => return self.on(inner),
            Err(error) => error,
        };
        let cause = error.to_string();
        // The standard library has no kind for this; its text is all there is to see.
        if cause.starts_with("failed to lookup address") {
            return NetError::NoHost(self.peer.clone());
        }
        match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => NetError::Stalled {
                address,
                after: self.patience,
            },
            ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
            | ErrorKind::AddrNotAvailable => NetError::Unreachable { address, cause },
            // rustls reports a certificate it does not accept this way.
            ErrorKind::InvalidData if self.address.scheme() == "https" => NetError::Tls { address, cause },
            _ => NetError::Broken { address, cause },
        }
    }
}

fn proxy_of(proxy: &Address) -> Result<ureq::Proxy, ureq::Error> {
    let protocol = if proxy.scheme() == "https" {
        ureq::ProxyProtocol::Https
    } else {
        ureq::ProxyProtocol::Http
    };
    let mut builder = ureq::Proxy::builder(protocol)
        .host(proxy.host())
        .port(proxy.port());
    if let Some(login) = proxy.credentials() {
        builder = builder.username(&login.user).password(&login.password);
    }
    builder.build()
}

/// The certificates of a PEM file, or of all PEM files of a folder.
fn read_certificates(path: &Path) -> Result<RootCerts, String> {
    let read = |path: &Path| std::fs::read(path).map_err(|error| error.to_string());
    let mut certificates: Vec<Certificate<'static>> = Vec::new();
    if path.is_dir() {
        let entries = std::fs::read_dir(path).map_err(|error| error.to_string())?;
        for file in entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_file())
        {
            certificates.extend(certificates_in(&read(&file)?));
        }
    } else {
        certificates = certificates_in(&read(path)?);
    }
    if certificates.is_empty() {
        Err("no PEM certificate is in it".into())
    } else {
        Ok(RootCerts::new_with_certs(&certificates))
    }
}

fn certificates_in(pem: &[u8]) -> Vec<Certificate<'static>> {
    let certificate = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    };
    parse_pem(pem).filter_map(certificate).collect()
}

/// How long a `Retry-After` header asks to wait: seconds, or a date (RFC 9110, section 10.2.3).
fn retry_after(value: &str, now: jiff::Timestamp) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(value)
        .ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = "1994-11-06T08:49:07Z".parse().unwrap();
        assert_eq!(retry_after("120", now), Some(Duration::from_secs(120)));
        assert_eq!(
            retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now),
            Some(Duration::from_secs(30))
        );
        assert_eq!(
            retry_after("Sun, 06 Nov 1994 08:00:00 GMT", now),
            Some(Duration::ZERO)
        );
        assert_eq!(retry_after("soon", now), None);
    }

    #[test]
    fn certificates_that_are_none_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        assert!(read_certificates(&file).is_err());
        std::fs::write(&file, "not a certificate").unwrap();
        assert!(read_certificates(&file).unwrap_err().contains("no PEM"));
        assert!(read_certificates(folder.path()).is_err());
    }

    #[test]
    fn what_ureq_says_never_shows_credentials_or_queries() {
        let address = Address::parse("https://u:secret@h.test/x?token=secret").unwrap();
        let blame = Blame {
            address,
            peer: "h.test".into(),
            patience: Duration::from_secs(1),
        };
        for error in [
            ureq::Error::BadUri("https://u:secret@h.test".into()),
            ureq::Error::HostNotFound,
            ureq::Error::Timeout(ureq::Timeout::Connect),
            ureq::Error::Io(std::io::ErrorKind::ConnectionReset.into()),
            ureq::Error::Io(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "bad certificate",
            )),
        ] {
            let text = blame.on(error).to_string();
            assert!(!text.contains("secret") && text.contains("h.test"), "{text}");
        }
    }
}
