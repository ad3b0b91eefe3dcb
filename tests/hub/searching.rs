//! Where a wheel is looked for: indexes, `find-links`, proxies, the second source; and who gets credentials.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::Ordering;

use mlx_chat::hub::{HubError, SourceError};

use crate::world::*;

/// Of `u:s3cret`.
const LOGIN: &str = "Basic dTpzM2NyZXQ=";

fn with_login(url: &str) -> String {
    url.replacen("http://", "http://u:s3cret@", 1)
}

#[test]
fn an_html_index_with_relative_links_serves() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let hash = sha256(&wheel);
    let server = Server::start(move |request, stream| {
        if request.target == "/root/simple/tiny-pkg/" {
            let page = format!(
                "<!DOCTYPE html><html><body><a href=\"../../f/tiny_pkg-0.9-py3-none-any.whl\">old</a><br/>\n\
                 <a data-requires-python=\"&gt;=3.9\" href=\"../../f/{WHEEL}#sha256={hash}\">{WHEEL}</a></body></html>"
            );
            respond(stream, "200 OK", "Content-Type: text/html\r\n", page.as_bytes());
        } else {
            assert_eq!(request.target, format!("/root/f/{WHEEL}"));
            send_file(request, stream, &wheel);
        }
    });
    world.var("PIP_INDEX_URL", &server.url("/root/simple/"));
    world.fetch_ok();
}

#[test]
fn an_index_that_promises_another_hash_is_not_downloaded_from() {
    let server = Server::start(|_, stream| send_page(stream, &json_page(WHEEL, "/f", &"0".repeat(64))));
    let world = World::with_index(&server.url("/simple"));
    let text = world.fetch_err();
    assert!(text.contains("another file of that name"), "{text}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn an_index_without_the_version_says_so() {
    let server =
        Server::start(|_, stream| send_page(stream, &json_page("tiny_pkg-0.9-py3-none-any.whl", "/f", "")));
    let text = World::with_index(&server.url("/simple")).fetch_err();
    assert!(
        text.contains(WHEEL) && text.contains("the package, without this file"),
        "{text}"
    );
}

#[test]
fn the_extra_index_serves_what_the_first_lacks_or_fails_to_give() {
    for status in ["404 Not Found", "403 Forbidden"] {
        let mut world = World::new();
        let wheel = world.wheel.clone();
        let first = Server::start(move |_, stream| respond(stream, status, "", b""));
        let extra = index_with(move |_, request, stream| send_file(request, stream, &wheel));
        world.var("PIP_INDEX_URL", &first.url("/simple"));
        world.var("PIP_EXTRA_INDEX_URL", &extra.url("/simple"));
        world.fetch_ok();
        assert_eq!(first.requests().len(), 1);
    }
}

#[test]
fn without_settings_the_default_index_is_the_one_that_pip_names() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |_, request, stream| send_file(request, stream, &wheel));
    world.default_index = Some(server.url("/simple"));
    world.fetch_ok();
    assert_eq!(world.python_asked.load(Ordering::SeqCst), 1);
}

#[test]
fn without_settings_and_without_pip_the_message_says_what_to_do() {
    let text = World::new().fetch_err();
    assert!(
        text.contains("python3 was not found") && text.contains("set PIP_INDEX_URL"),
        "{text}"
    );
}

#[test]
fn a_folder_of_find_links_serves_without_any_socket_and_keeps_its_wheel() {
    for as_address in [false, true] {
        let mut world = World::new();
        let wheels = world.folder.path().join("wheels");
        std::fs::create_dir(&wheels).unwrap();
        std::fs::write(wheels.join(WHEEL), &world.wheel).unwrap();
        let server = Server::start(|_, _| {});
        world.var("PIP_INDEX_URL", &server.url("/simple"));
        let prefix = if as_address { "file://" } else { "" };
        world.var(
            "PIP_FIND_LINKS",
            &format!("/no/such/folder {prefix}{}", wheels.display()),
        );
        world.settings.offline = true;
        world.fetch_ok();
        assert_eq!(server.requests().len(), 0);
        assert!(wheels.join(WHEEL).exists());
    }
}

#[test]
fn a_local_index_page_leads_to_the_wheel_beside_it() {
    let mut world = World::new();
    let root = world.folder.path().join("mirror");
    std::fs::create_dir_all(root.join("simple/tiny-pkg")).unwrap();
    std::fs::create_dir_all(root.join("files")).unwrap();
    std::fs::write(root.join("files").join(WHEEL), &world.wheel).unwrap();
    let page = format!("<a href=\"../../files/{WHEEL}\">{WHEEL}</a>");
    std::fs::write(root.join("simple/tiny-pkg/index.html"), page).unwrap();
    world.var("PIP_INDEX_URL", &format!("file://{}/simple", root.display()));
    world.settings.offline = true;
    world.fetch_ok();
}

#[test]
fn a_page_from_the_network_can_not_lead_to_a_file_of_this_machine() {
    let mut world = World::new();
    let here = world.folder.path().join(WHEEL);
    std::fs::write(&here, &world.wheel).unwrap();
    let target = format!("file://{}", here.display());
    let server = Server::start(move |_, stream| send_page(stream, &json_page(WHEEL, &target, "")));
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    assert!(world.fetch_err().contains("without this file"));
}

#[test]
fn another_file_of_the_name_in_find_links_is_passed_over() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    std::fs::write(world.folder.path().join(WHEEL), vec![7; wheel.len()]).unwrap();
    let server = index_with(move |_, request, stream| send_file(request, stream, &wheel));
    world.var(
        "PIP_FIND_LINKS",
        world.folder.path().to_str().unwrap().to_string().as_str(),
    );
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    world.fetch_ok();
    assert_eq!(server.requests_for(WHEEL).len(), 1);
}

#[test]
fn find_links_may_be_a_page_or_the_wheel_itself_and_no_index_forbids_the_index() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = Server::start(move |request, stream| match request.target.as_str() {
        "/links.html" => {
            let page = format!("<a href=\"{WHEEL}\">x</a>");
            respond(stream, "200 OK", "Content-Type: text/html\r\n", page.as_bytes());
        }
        _ => send_file(request, stream, &wheel),
    });
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    world.var("PIP_NO_INDEX", "1");
    let text = world.fetch_err();
    assert!(text.contains("pip's settings allow no index"), "{text}");
    assert_eq!(server.requests().len(), 0);
    world.var("PIP_FIND_LINKS", &server.url("/links.html"));
    world.fetch_ok();
    let mut direct = World::new();
    direct.var("PIP_NO_INDEX", "1");
    direct.var("PIP_FIND_LINKS", &server.url(&format!("/{WHEEL}")));
    direct.fetch_ok();
}

#[test]
fn credentials_of_the_index_go_to_its_own_files_and_to_nobody_else() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let elsewhere = Server::start(move |request, stream| send_file(request, stream, &wheel));
    let away = elsewhere.url(&format!("/{WHEEL}"));
    let server = Server::start(move |request, stream| match request.target.as_str() {
        "/simple/tiny-pkg/" => send_page(stream, &json_page(WHEEL, "/here", "")),
        _ => respond(
            stream,
            "307 Temporary Redirect",
            &format!("Location: {away}\r\n"),
            b"",
        ),
    });
    world.var("PIP_INDEX_URL", &with_login(&server.url("/simple")));
    world.fetch_ok();
    for request in server.requests() {
        assert_eq!(request.header("authorization"), Some(LOGIN), "{}", request.target);
    }
    assert_eq!(elsewhere.requests()[0].header("authorization"), None);
}

#[test]
fn credentials_never_appear_in_an_error() {
    for status in [
        "401 Unauthorized",
        "404 Not Found",
        "500 Internal Server Error",
        "302 Found",
    ] {
        let server = index_with(move |_, _, stream| respond(stream, status, "", b""));
        let mut world = World::with_index(&with_login(&server.url("/simple")));
        let text = world.fetch_err();
        assert!(!text.contains("s3cret") && !text.contains("u:"), "{text}");
        // Nor in the progress told.
        let told = format!("{:?}", world.fetch().1);
        assert!(!told.contains("s3cret"), "{told}");
        // A proxy that is not there.
        world.var("HTTP_PROXY", "http://me:s3cret@127.0.0.1:1");
        let text = world.fetch_err();
        assert!(!text.contains("s3cret") && !text.contains("me:"), "{text}");
    }
}

/// Answers CONNECT, then the request inside.
fn tunnel(request: &Request, stream: &mut TcpStream, answer: impl Fn(&Request, &mut TcpStream)) {
    assert_eq!(request.method, "CONNECT");
    stream
        .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        .unwrap();
    if let Some(inner) = Request::read(stream) {
        answer(&inner, stream);
    }
}

#[test]
fn the_proxy_variable_is_honoured_with_its_credentials() {
    for (name, value_of) in [("HTTP_PROXY", "http://"), ("all_proxy", ""), ("PIP_PROXY", "")] {
        let mut world = World::new();
        let wheel = world.wheel.clone();
        let proxy = Server::start(move |request, stream| {
            tunnel(request, stream, |inner, stream| {
                if inner.target == "/simple/tiny-pkg/" {
                    send_page(stream, &json_page(WHEEL, "/f", ""));
                } else {
                    send_file(inner, stream, &wheel);
                }
            });
        });
        world.var("PIP_INDEX_URL", "http://index.invalid/simple");
        world.var(name, &format!("{value_of}u:s3cret@{}", proxy.address));
        world.fetch_ok();
        for request in proxy.requests() {
            assert_eq!(request.target, "index.invalid:80");
            assert_eq!(request.header("proxy-authorization"), Some(LOGIN));
        }
    }
}

#[test]
fn a_proxy_that_refuses_is_named_as_such() {
    let proxy = Server::start(|_, stream| respond(stream, "407 Proxy Authentication Required", "", b""));
    let mut world = World::with_index("http://index.invalid/simple");
    world.var("http_proxy", &proxy.url(""));
    let text = world.fetch_err();
    assert!(text.contains("proxy") && text.contains("407"), "{text}");
}

#[test]
fn no_proxy_goes_straight() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |_, request, stream| send_file(request, stream, &wheel));
    let proxy = Server::start(|_, _| {});
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    world.var("HTTP_PROXY", &proxy.url(""));
    world.var("NO_PROXY", "localhost,127.0.0.1");
    world.fetch_ok();
    assert_eq!(proxy.requests().len(), 0);
}

#[test]
fn the_second_source_serves_when_the_first_fails() {
    let mut world = World::new();
    world.repository = true;
    let model = world.model.clone();
    let hub = Server::start(move |request, stream| {
        assert_eq!(request.target, "/owner/tiny-GGUF/resolve/abc/model.gguf");
        send_file(request, stream, &model);
    });
    let index = Server::start(|_, stream| respond(stream, "404 Not Found", "", b""));
    world.var("PIP_INDEX_URL", &index.url("/simple"));
    world.var("HF_ENDPOINT", &hub.url("/"));
    world.fetch_ok();
}

#[test]
fn when_all_sources_fail_each_is_listed_with_its_error() {
    let mut world = World::new();
    world.repository = true;
    let hub = Server::start(|_, stream| respond(stream, "200 OK", "", &vec![7; 300_000]));
    let index = Server::start(|_, stream| respond(stream, "404 Not Found", "", b""));
    world.var("PIP_INDEX_URL", &index.url("/simple"));
    world.var("HF_ENDPOINT", &hub.url(""));
    let Err(HubError::NoSource { tries, .. }) = world.fetch().0 else {
        panic!("it should fail")
    };
    assert_eq!(tries[0].source, "package Tiny_Pkg 1.0");
    assert!(matches!(tries[0].error, SourceError::NotOffered { .. }));
    assert_eq!(tries[1].source, "repository owner/tiny-GGUF");
    assert!(matches!(tries[1].error, SourceError::WrongHash { .. }));
    let text = world.fetch_err();
    assert!(
        text.contains("\n  package Tiny_Pkg 1.0: ") && text.contains("\n  repository owner/tiny-GGUF: "),
        "{text}"
    );
}
