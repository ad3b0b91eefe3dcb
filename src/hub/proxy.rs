//! Which proxy, if any, a request goes through: pip's own, else the variables every tool honours.

use std::net::IpAddr;

use super::address::Address;
use super::surroundings::Surroundings;

/// The proxies configured.
#[derive(Debug, Clone, Default)]
pub(super) struct Proxies {
    /// For every request, whatever `no_proxy` says, as pip has it.
    pip: Option<Result<Address, String>>,
    http: Option<Result<Address, String>>,
    https: Option<Result<Address, String>>,
    all: Option<Result<Address, String>>,
    bypass: Vec<String>,
}

impl Proxies {
    /// Reads `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`; the lower-case name wins, as in Python and curl.
    pub fn read(around: &Surroundings, pip: Option<&str>) -> Self {
        let var = |name: &str| {
            let lower = (around.var)(&name.to_ascii_lowercase());
            let value = lower
                .or_else(|| (around.var)(name))
                .and_then(|value| value.into_string().ok());
            value
                .map(|value| value.trim().to_string())
                .filter(|value| !value.is_empty())
        };
        let proxy = |name: &str| var(name).map(|text| parse(&text));
        Self {
            pip: pip.map(parse),
            http: proxy("HTTP_PROXY"),
            https: proxy("HTTPS_PROXY"),
            all: proxy("ALL_PROXY"),
            bypass: var("NO_PROXY")
                .map(|list| {
                    list.split(',')
                        .map(|entry| entry.trim().to_ascii_lowercase())
                        .collect()
                })
                .unwrap_or_default(),
        }
    }

    /// The proxy for this address; an error says why the one configured can't be used.
    pub fn choose(&self, address: &Address) -> Result<Option<&Address>, String> {
        let by_scheme = if address.scheme() == "https" {
            &self.https
        } else {
            &self.http
        };
        let chosen = match &self.pip {
            Some(pip) => Some(pip),
            None if self.bypassed(address) => None,
            None => by_scheme.as_ref().or(self.all.as_ref()),
        };
        chosen
            .map(|proxy| proxy.as_ref().map_err(Clone::clone))
            .transpose()
    }

    fn bypassed(&self, address: &Address) -> bool {
        let host = address.host().trim_matches(['[', ']']);
        self.bypass
            .iter()
            .any(|entry| matches(entry, host, address.port()))
    }
}

/// `host:port` without a scheme means an HTTP proxy.
fn parse(text: &str) -> Result<Address, String> {
    let scheme = text
        .split_once("://")
        .map(|(scheme, _)| scheme.to_ascii_lowercase());
    match scheme.as_deref() {
        None => Address::parse(&format!("http://{text}")),
        Some("http" | "https") => Address::parse(text),
        Some(_) => Err("only http and https proxies can be used".into()),
    }
}

/// Whether an entry of `NO_PROXY` covers a host: `*`, a host or a domain above it, an address, an IPv4 net, each with a port or not.
fn matches(entry: &str, host: &str, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let (Some((net, bits)), Ok(IpAddr::V4(address))) = (entry.split_once('/'), host.parse()) {
        let net = net.parse::<std::net::Ipv4Addr>().ok();
        let bits = bits.parse::<u32>().ok().filter(|bits| *bits <= 32);
        return net.zip(bits).is_some_and(|(net, bits)| {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            net.to_bits() & mask == address.to_bits() & mask
        });
    }
    let (name, wanted) = match entry.rsplit_once(':') {
        Some((name, digits)) if !name.contains(':') || name.ends_with(']') => (name, digits.parse().ok()),
        _ => (entry, None),
    };
    if wanted.is_some_and(|wanted: u16| wanted != port) {
        return false;
    }
    let name = name
        .trim_matches(['[', ']'])
        .trim_start_matches("*.")
        .trim_start_matches('.');
    !name.is_empty() && (host == name || host.strip_suffix(name).is_some_and(|head| head.ends_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn proxies(vars: &[(&str, &str)], pip: Option<&str>) -> Proxies {
        let vars: Vec<(String, String)> = vars.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let around = Surroundings {
            var: Arc::new(move |name| {
                vars.iter()
                    .find(|(key, _)| key == name)
                    .map(|(_, value)| value.into())
            }),
            ..Surroundings::of_process()
        };
        Proxies::read(&around, pip)
    }

    fn chosen(proxies: &Proxies, address: &str) -> String {
        let address = Address::parse(address).unwrap();
        match proxies.choose(&address) {
            Ok(proxy) => proxy.map_or("none".into(), |proxy| proxy.wire()),
            Err(why) => format!("error: {why}"),
        }
    }

    #[test]
    fn the_scheme_chooses_and_all_proxy_is_the_rest() {
        let both = proxies(&[("HTTP_PROXY", "http://a:1"), ("HTTPS_PROXY", "b:2")], None);
        assert_eq!(chosen(&both, "http://x/"), "http://a:1/");
        assert_eq!(chosen(&both, "https://x/"), "http://b:2/");
        let all = proxies(&[("ALL_PROXY", "http://c:3"), ("http_proxy", "http://a:1")], None);
        assert_eq!(chosen(&all, "http://x/"), "http://a:1/");
        assert_eq!(chosen(&all, "https://x/"), "http://c:3/");
    }

    #[test]
    fn the_lower_case_name_wins_and_may_switch_off() {
        let lower = proxies(
            &[("HTTP_PROXY", "http://upper:1"), ("http_proxy", "http://lower:1")],
            None,
        );
        assert_eq!(chosen(&lower, "http://x/"), "http://lower:1/");
        let off = proxies(&[("HTTP_PROXY", "http://upper:1"), ("http_proxy", "")], None);
        assert_eq!(chosen(&off, "http://x/"), "none");
    }

    #[test]
    fn pips_own_proxy_comes_first_whatever_no_proxy_says() {
        let pip = proxies(&[("HTTP_PROXY", "http://a:1"), ("NO_PROXY", "*")], Some("p:9"));
        assert_eq!(chosen(&pip, "http://x/"), "http://p:9/");
    }

    #[test]
    fn a_proxy_of_another_kind_is_an_error_that_hides_its_password() {
        let socks = proxies(&[("ALL_PROXY", "socks5://u:secret@p:1")], None);
        assert_eq!(
            chosen(&socks, "http://x/"),
            "error: only http and https proxies can be used"
        );
    }

    #[test]
    fn no_proxy_covers_hosts_domains_addresses_and_nets() {
        for (list, address, bypassed) in [
            ("*", "http://x/", true),
            ("example.com", "http://example.com/", true),
            ("example.com", "http://a.example.com/", true),
            (".example.com", "http://a.b.example.com/", true),
            ("*.example.com", "http://a.example.com/", true),
            ("example.com", "http://badexample.com/", false),
            ("EXAMPLE.com", "http://example.COM/", true),
            ("other, example.com", "http://example.com/", true),
            ("example.com:8080", "http://example.com:8080/", true),
            ("example.com:8080", "http://example.com/", false),
            ("10.0.0.0/8", "http://10.1.2.3/", true),
            ("10.0.0.0/8", "http://11.1.2.3/", false),
            ("0.0.0.0/0", "http://11.1.2.3/", true),
            ("127.0.0.1", "http://127.0.0.1:99/", true),
            ("::1", "http://[::1]:99/", true),
            ("[::1]:99", "http://[::1]:99/", true),
            (",,", "http://x/", false),
        ] {
            let some = proxies(&[("HTTP_PROXY", "http://a:1"), ("NO_PROXY", list)], None);
            assert_eq!(chosen(&some, address) == "none", bypassed, "{list} {address}");
        }
    }
}
