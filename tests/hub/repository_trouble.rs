//! Pulls of repositories that must fail, or nearly: the message says why, and nothing wrong is left behind.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};

use mlx_chat::hub::{Cancel, HubError, Located, Progress};

use crate::hub_server::*;
use crate::world::*;

/// A hub that answers every request so.
fn refusing(status: &'static str, headers: &'static str) -> Server {
    Server::start(move |_, stream| respond(stream, status, headers, b""))
}

fn world_at(server: &Server) -> World {
    let mut world = World::new();
    let cache = cache_of(&world);
    world.var("HF_HUB_CACHE", cache.to_str().unwrap());
    world.var("HF_ENDPOINT", &server.url(""));
    world
}

#[test]
fn each_refusal_says_what_to_do() {
    for (status, headers, says) in [
        (
            "401 Unauthorized",
            "",
            "not authorized (401); no token was sent: set HF_TOKEN",
        ),
        (
            "401 Unauthorized",
            "X-Error-Code: RepoNotFound\r\n",
            "has no such repository, or it is private",
        ),
        (
            "404 Not Found",
            "X-Error-Code: RepoNotFound\r\n",
            "no file or folder is called so here",
        ),
        ("404 Not Found", "", "has no such repository"),
        (
            "404 Not Found",
            "X-Error-Code: RevisionNotFound\r\n",
            "it has no revision 'main'",
        ),
        ("403 Forbidden", "X-Error-Code: GatedRepo\r\n", "accept its terms"),
        (
            "403 Forbidden",
            "X-Error-Message: not today\r\n",
            "forbidden (403): not today; no token",
        ),
    ] {
        let server = refusing(status, headers);
        let world = world_at(&server);
        let text = pull_err(&world, ID);
        assert!(text.starts_with("org/tiny: ") && text.contains(says), "{text}");
        assert_eq!(server.requests().len(), 1, "it is asked once");
        assert!(!cache_of(&world).exists());
    }
}

#[test]
fn a_token_that_is_not_accepted_is_named_by_where_it_is_from() {
    let server = refusing(
        "401 Unauthorized",
        "X-Error-Message: Invalid credentials in Authorization header\r\n",
    );
    let mut world = world_at(&server);
    world.var("HF_TOKEN", "hf_secret");
    let text = pull_err(&world, ID);
    assert!(
        text.contains("the token of HF_TOKEN was sent: is it right"),
        "{text}"
    );
}

#[test]
fn a_gated_repository_is_named_by_its_page() {
    let server = refusing("403 Forbidden", "X-Error-Code: GatedRepo\r\n");
    let text = pull_err(&world_at(&server), ID);
    assert!(text.contains(&server.url("/org/tiny")), "{text}");
}

#[test]
fn a_file_that_is_gone_is_named() {
    let server = HubServer::before(Repo::folder(), |request, stream| {
        let is = request.target.ends_with("/tokenizer.json");
        if is {
            respond(stream, "404 Not Found", "X-Error-Code: EntryNotFound\r\n", b"");
        }
        is
    });
    let text = pull_err(&server.world(), ID);
    assert!(text.contains("its file tokenizer.json is not there"), "{text}");
}

#[test]
fn a_busy_hub_is_asked_again_after_the_time_it_names() {
    let count = AtomicUsize::new(0);
    let server = HubServer::before(Repo::folder(), move |_, stream| {
        let busy = count.fetch_add(1, Ordering::SeqCst) < 2;
        if busy {
            respond(stream, "429 Too Many Requests", "Retry-After: 0\r\n", b"");
        }
        busy
    });
    let (result, told) = pull(&server.world(), ID);
    result.unwrap();
    let waits: Vec<_> = told
        .iter()
        .filter_map(|step| match step {
            Progress::Retrying { after, .. } => Some(after.as_secs()),
            _ => None,
        })
        .collect();
    assert_eq!(waits, [0, 0]);
}

#[test]
fn a_hub_that_asks_for_an_hour_is_not_waited_for() {
    let server = refusing("429 Too Many Requests", "Retry-After: 3600\r\n");
    let text = pull_err(&world_at(&server), ID);
    assert!(text.contains("asks to wait 3600 s"), "{text}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_hub_that_keeps_failing_is_given_up() {
    let server = refusing("503 Service Unavailable", "");
    let text = pull_err(&world_at(&server), ID);
    assert!(text.contains("answered 503"), "{text}");
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn a_keeper_that_fails_at_first_is_asked_again() {
    let repo = Repo::gguf();
    let sent = repo.clone();
    let server = HubServer::with(
        repo,
        |_, _| false,
        move |count, request, stream| match count {
            0 => respond(stream, "502 Bad Gateway", "", b""),
            _ => send_blob(&sent, request, stream),
        },
    );
    pull_ok(&server.world(), ID);
    assert_eq!(server.cdn.requests().len(), 2);
}

#[test]
fn bytes_of_another_hash_are_refused_and_deleted() {
    let repo = Repo::gguf();
    let length = repo.bytes("tiny-Q4_K_M.gguf").len();
    let server = HubServer::with(
        repo,
        |_, _| false,
        move |_, request, stream| send_file(request, stream, &vec![7; length]),
    );
    let world = server.world();
    let text = pull_err(&world, ID);
    let tag = server.repo.tag("tiny-Q4_K_M.gguf").0;
    assert!(text.contains(&tag) && text.contains("it was deleted"), "{text}");
    assert_eq!(
        std::fs::read_dir(repo_folder(&world).join("blobs"))
            .unwrap()
            .count(),
        0
    );
    assert!(world.hub().cached().is_empty());
}

#[test]
fn a_small_file_of_another_hash_is_refused_by_gits_id() {
    let server = HubServer::before(Repo::folder(), |request, stream| {
        let is = request.method == "GET" && request.target.ends_with("/tokenizer.json");
        if is {
            respond(stream, "200 OK", "", b"[]");
        }
        is
    });
    let text = pull_err(&server.world(), ID);
    assert!(text.contains("tokenizer.json has git blob id"), "{text}");
}

#[test]
fn bytes_of_another_length_are_refused_before_they_are_read() {
    for length in [10, 10_000_000] {
        let server = HubServer::with(
            Repo::gguf(),
            |_, _| false,
            move |_, _, stream| {
                respond(
                    stream,
                    "200 OK",
                    &format!("Content-Length: {length}\r\n"),
                    b"0123456789",
                )
            },
        );
        let text = pull_err(&server.world(), ID);
        assert!(
            text.contains(&format!("has {length} bytes, but 2000 are expected")),
            "{text}"
        );
        assert_eq!(server.cdn.requests().len(), 1);
    }
}

#[test]
fn file_names_that_lead_out_of_the_folder_are_refused() {
    for evil in [
        "../evil.gguf",
        "/etc/evil.gguf",
        "a/../../../evil.gguf",
        "a\\b.gguf",
        "x\u{1b}[2J.gguf",
    ] {
        let server = HubServer::start(Repo::new(&[(evil, b"GGUF")]));
        let world = server.world();
        let text = pull_err(&world, ID);
        assert!(
            text.contains("would lead elsewhere") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert!(!cache_of(&world).exists());
    }
}

#[test]
fn tags_that_lead_out_of_the_folder_are_refused() {
    let server = HubServer::before(Repo::gguf(), |request, stream| {
        let head = request.method == "HEAD";
        if head {
            respond(
                stream,
                "200 OK",
                "ETag: \"../../evil\"\r\nContent-Length: 2000\r\n",
                b"",
            );
        }
        head
    });
    let text = pull_err(&server.world(), ID);
    assert!(text.contains("doesn't say the tag of tiny-Q4_K_M.gguf"), "{text}");
}

#[test]
fn what_is_no_hub_is_called_so() {
    for body in [
        &b"<html>a captive portal</html>"[..],
        b"{\"sha\": \"../../evil\", \"siblings\": []}",
    ] {
        let server = Server::start(move |_, stream| respond(stream, "200 OK", "", body));
        let text = pull_err(&world_at(&server), ID);
        assert!(
            text.contains("doesn't answer as a model hub does") && text.contains("HF_ENDPOINT"),
            "{text}"
        );
    }
}

#[test]
fn an_index_that_names_weights_which_are_not_there_is_an_error() {
    let mut repo = Repo::folder();
    repo.files.remove(5);
    let server = HubServer::start(repo);
    let world = server.world();
    let text = pull_err(&world, ID);
    assert!(text.contains("model-00002-of-00002.safetensors"), "{text}");
    assert!(world.hub().cached().is_empty());
}

#[test]
fn redirects_end() {
    let server = Server::start(|request, stream| {
        respond(
            stream,
            "302 Found",
            &format!("Location: {}\r\n", request.target),
            b"",
        );
    });
    let text = pull_err(&world_at(&server), ID);
    assert!(text.contains("after 10 redirects"), "{text}");
    let server = HubServer::with(
        Repo::gguf(),
        |_, _| false,
        |_, _, stream| respond(stream, "302 Found", "Location: file:///etc/passwd\r\n", b""),
    );
    let text = pull_err(&server.world(), ID);
    assert!(text.contains("less safe"), "{text}");
}

#[test]
fn a_renamed_repository_is_followed_on_the_same_host() {
    let server = HubServer::before(Repo::gguf(), |request, stream| {
        let old = request.target.replace("/old/name", "/org/tiny");
        let moved = old != request.target;
        if moved {
            respond(
                stream,
                "307 Temporary Redirect",
                &format!("Location: {old}\r\n"),
                b"",
            );
        }
        moved
    });
    assert!(
        pull_ok(&server.world(), "old/name")
            .model
            .path
            .ends_with("tiny-Q4_K_M.gguf")
    );
}

#[test]
fn a_full_disk_is_noticed_before_the_download() {
    let server = HubServer::start(Repo::folder());
    let mut world = server.world();
    world.free_bytes = Some(1_000_000);
    let error = pull(&world, ID).0.unwrap_err();
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
    assert!(error.to_string().contains("HF_HOME"), "{error}");
    assert_eq!(server.downloads(), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fills_up_meanwhile_is_named_as_full() {
    let server = HubServer::start(Repo::gguf());
    let world = server.world();
    // Writing to this device fails as on a full disk.
    let blobs = repo_folder(&world).join("blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let part = blobs.join(format!("{}.incomplete", server.repo.tag("tiny-Q4_K_M.gguf").0));
    std::os::unix::fs::symlink("/dev/full", part).unwrap();
    let error = pull(&world, ID).0.unwrap_err();
    assert!(matches!(error, HubError::DiskFull { free: None, .. }), "{error}");
}

#[test]
fn a_cache_that_can_not_be_written_to_is_named() {
    let server = HubServer::start(Repo::gguf());
    let world = server.world();
    std::fs::create_dir_all(cache_of(&world).parent().unwrap()).unwrap();
    std::fs::write(cache_of(&world), "a file where a folder should be").unwrap();
    let text = pull_err(&world, ID);
    assert!(
        text.contains("can't make the folder") && text.contains("shared/hub"),
        "{text}"
    );
}

#[test]
fn a_proxy_is_used_and_no_proxy_goes_straight() {
    let server = HubServer::start(Repo::gguf());
    let (told, keeper) = (server.repo.clone(), server.cdn.url(""));
    let proxy = Server::start(move |_, stream| {
        drop(std::io::Write::write_all(
            stream,
            b"HTTP/1.1 200 Connection established\r\n\r\n",
        ));
        if let Some(inner) = Request::read(stream) {
            if inner.target.contains("signed") {
                send_blob(&told, &inner, stream);
            } else {
                answer(&told, &keeper, &inner, stream);
            }
        }
    });
    let mut world = server.world();
    world.var("HF_ENDPOINT", "http://hub.invalid");
    world.var("HTTP_PROXY", &proxy.url(""));
    pull_ok(&world, ID);
    assert!(
        proxy
            .requests()
            .iter()
            .any(|request| request.target == "hub.invalid:80")
    );
    let before = proxy.requests().len();
    let mut straight = server.world();
    straight.var("HTTP_PROXY", &proxy.url(""));
    straight.var("NO_PROXY", "127.0.0.1");
    pull_ok(&straight, ID);
    assert_eq!(proxy.requests().len(), before);
}

#[test]
fn a_host_that_does_not_speak_tls_is_an_error_of_the_connection() {
    let mut world = World::new();
    let cache = cache_of(&world);
    world.var("HF_HUB_CACHE", cache.to_str().unwrap());
    world.settings.retry.attempts = 1;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    world.var(
        "HF_ENDPOINT",
        &format!("https://{}", listener.local_addr().unwrap()),
    );
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(std::io::Write::write_all(
            &mut stream,
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
        ));
    });
    let text = pull_err(&world, ID);
    answering.join().unwrap();
    assert!(
        text.contains("no safe connection") || text.contains("broke"),
        "{text}"
    );
}

#[test]
fn offline_no_connection_is_made_and_the_cache_serves() {
    let server = HubServer::start(Repo::gguf());
    let mut world = server.world();
    pull_ok(&world, ID);
    // Whoever connects is heard: nobody may.
    let silent = Server::start(|_, _| {});
    world.var("HF_ENDPOINT", &silent.url(""));
    world.var("HF_HUB_OFFLINE", "1");
    world.var("HTTP_PROXY", &silent.url(""));
    let pulled = pull_ok(&world, ID);
    assert!(pulled.was_there && pulled.commit.as_deref() == Some(COMMIT) && pulled.bytes == 2000);
    world.hub().ensure(Some(ID), &mut |_| {}, &Cancel::new()).unwrap();
    for name in ["org/other", "org/tiny@v2", "org/tiny:Q8_0"] {
        let text = pull_err(&world, name);
        assert!(
            text.contains("can't be downloaded offline") && text.contains("shared/hub"),
            "{text}"
        );
    }
    world.vars.remove("HF_HUB_OFFLINE");
    world.settings.offline = true;
    assert!(pull_err(&world, "org/other").contains("offline"));
    assert_eq!(silent.connections(), 0);
}

#[test]
fn a_name_that_is_nearly_one_of_the_cache_is_suggested() {
    let server = HubServer::start(Repo::gguf());
    let world = server.world();
    pull_ok(&world, ID);
    let text = pull_err(&world, "org/tinny");
    assert!(text.contains("Did you mean 'org/tiny'?"), "{text}");
    let text = world.hub().resolve(Some("tinny")).unwrap_err().to_string();
    assert!(
        text.contains("did you mean 't") || text.contains("did you mean 'org/tiny'"),
        "{text}"
    );
    assert!(matches!(
        world.hub().resolve(Some("org/tinny")).unwrap(),
        Located::Repository(_)
    ));
}

#[test]
fn a_quantization_of_safetensors_is_refused_with_what_to_do() {
    let server = HubServer::start(Repo::folder());
    let world = server.world();
    let text = pull_err(&world, "org/tiny:Q4_K_M");
    assert!(
        text.contains("no GGUF files") && text.contains("leave ':Q4_K_M' out") && !text.contains("neither"),
        "{text}"
    );
}

fn notes(told: &[Progress]) -> Vec<&str> {
    told.iter()
        .filter_map(|step| match step {
            Progress::Note(note) => Some(note.as_str()),
            _ => None,
        })
        .collect()
}

#[test]
fn where_no_hub_is_reached_a_complete_copy_serves_and_is_said_to_be_unasked_for() {
    let server = HubServer::start(Repo::folder());
    let mut world = server.world();
    pull_ok(&world, ID);
    let taken = "the copy in the cache is taken, of commit";
    // Nobody listens at a port that was given back.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    world.var("HF_ENDPOINT", &nobody);
    world.settings.retry.attempts = 1;
    let (pulled, told) = pull(&world, ID);
    assert!(pulled.unwrap().was_there);
    let said = notes(&told);
    assert!(
        said.iter()
            .any(|note| note.contains("no connection") && note.contains(taken)),
        "{said:?}"
    );
    assert!(pull_err(&world, "org/other").contains("no connection"));
    world.settings.offline = true;
    let (pulled, told) = pull(&world, ID);
    assert!(pulled.unwrap().was_there);
    assert!(
        notes(&told)
            .iter()
            .any(|note| note.starts_with("offline: ") && note.contains(taken))
    );
    // An incomplete copy is none.
    let snapshot = repo_folder(&world).join("snapshots").join(COMMIT);
    std::fs::remove_file(snapshot.join("model-00002-of-00002.safetensors")).unwrap();
    assert!(pull_err(&world, ID).contains("offline"));
    world.settings.offline = false;
    assert!(pull_err(&world, ID).contains("no connection"));
}
