//! Repositories of a model hub: what is fetched, how it is kept, how it goes on after a stop.

use std::sync::Mutex;
use std::sync::mpsc;

use mlx_chat::hub::{Cancel, HubError, Located, ModelKind, Progress};

use crate::hub_server::*;
use crate::world::*;

#[test]
fn a_repository_is_resolved_downloaded_and_linked_into_the_shared_cache() {
    let server = HubServer::start(Repo::folder());
    let world = server.world();
    let pulled = pull_ok(&world, ID);
    assert!(!pulled.was_there);
    assert_eq!(
        (pulled.model.kind, pulled.commit.as_deref()),
        (ModelKind::Folder, Some(COMMIT))
    );
    let folder = repo_folder(&world);
    assert_eq!(pulled.model.path, folder.join("snapshots").join(COMMIT));
    let names = [
        "config.json",
        "tokenizer.json",
        "model-00001-of-00002.safetensors",
    ];
    for name in names {
        let pointer = pulled.model.path.join(name);
        assert_eq!(std::fs::read(&pointer).unwrap(), server.repo.bytes(name));
        let target = std::fs::read_link(&pointer).unwrap();
        assert_eq!(
            target.to_str().unwrap(),
            format!("../../blobs/{}", server.repo.tag(name).0)
        );
    }
    for name in ["README.md", "pytorch_model.bin"] {
        assert!(!pulled.model.path.join(name).exists());
        assert_eq!(server.hub.requests_for(name).len(), 0, "{name}");
    }
    assert_eq!(std::fs::read_to_string(folder.join("refs/main")).unwrap(), COMMIT);
    let expected: usize = ["config.json", "tokenizer.json", "model.safetensors.index.json"]
        .iter()
        .chain(&[
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
        ])
        .map(|name| server.repo.bytes(name).len())
        .sum();
    assert_eq!(pulled.bytes, expected as u64);
}

#[test]
fn what_is_there_is_verified_and_not_downloaded_again() {
    let server = HubServer::start(Repo::folder());
    let world = server.world();
    pull_ok(&world, ID);
    let before = server.downloads();
    assert_eq!(before, 5);
    let (again, told) = pull(&world, ID);
    assert!(again.unwrap().was_there);
    assert_eq!(server.downloads(), before);
    assert!(told.iter().any(|step| matches!(step, Progress::Verifying { .. })));
}

#[test]
fn a_damaged_file_of_a_repository_is_fetched_again_and_said_to_be() {
    let server = HubServer::start(Repo::folder());
    let world = server.world();
    let pulled = pull_ok(&world, ID);
    let name = "model-00002-of-00002.safetensors";
    let blob = repo_folder(&world).join("blobs").join(server.repo.tag(name).0);
    let mut bytes = std::fs::read(&blob).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&blob, bytes).unwrap();
    let before = server.downloads();
    let (again, told) = pull(&world, ID);
    assert!(!again.unwrap().was_there);
    assert_eq!(server.downloads(), before + 1);
    assert_eq!(
        std::fs::read(pulled.model.path.join(name)).unwrap(),
        server.repo.bytes(name)
    );
    assert!(
        told.iter()
            .any(|step| matches!(step, Progress::Note(note) if note.contains("damaged")))
    );
}

#[test]
fn the_token_goes_to_the_hub_and_to_no_other_host() {
    let server = HubServer::start(Repo::folder());
    let mut world = server.world();
    world.var("HF_TOKEN", "hf_secret");
    pull_ok(&world, ID);
    let (hub, cdn) = (server.hub.requests(), server.cdn.requests());
    assert!(
        hub.iter()
            .all(|request| request.header("authorization") == Some("Bearer hf_secret"))
    );
    assert!(
        !cdn.is_empty()
            && cdn
                .iter()
                .all(|request| request.header("authorization").is_none())
    );
}

#[test]
fn every_file_is_asked_for_by_the_commit_and_uncompressed() {
    let server = HubServer::start(Repo::folder());
    pull_ok(&server.world(), ID);
    let files: Vec<Request> = server.hub.requests();
    let files = files
        .iter()
        .filter(|request| !request.target.starts_with("/api/"));
    for request in files.clone() {
        assert!(
            request.target.starts_with(&format!("/{ID}/resolve/{COMMIT}/")),
            "{}",
            request.target
        );
        assert_eq!(request.header("accept-encoding"), Some("identity"));
    }
    assert_eq!(files.filter(|request| request.method == "HEAD").count(), 5);
}

#[test]
fn a_branch_that_moves_keeps_the_old_snapshot_and_shares_its_blobs() {
    let first = HubServer::start(Repo::folder());
    let mut world = first.world();
    let old = pull_ok(&world, ID);
    let mut moved = Repo::folder();
    moved.commit = "f".repeat(40);
    moved.files[1].1 = br#"{"model_type": "llama", "new": true}"#.to_vec();
    let second = HubServer::start(moved);
    world.var("HF_ENDPOINT", &second.hub.url(""));
    let new = pull_ok(&world, ID);
    assert_eq!(second.downloads(), 1, "only the changed file");
    assert_ne!(old.model.path, new.model.path);
    assert!(old.model.path.join("config.json").is_file());
    let main = std::fs::read_to_string(repo_folder(&world).join("refs/main")).unwrap();
    assert_eq!(main, "f".repeat(40));
    let names: Vec<String> = world.hub().cached().into_iter().map(|model| model.name).collect();
    assert_eq!(names, [ID.to_string(), format!("{ID}@{COMMIT}")]);
}

#[test]
fn a_file_of_another_commit_is_refused() {
    let server = HubServer::before(Repo::folder(), |request, stream| {
        let is = request.target.ends_with("/config.json");
        if is {
            let headers = format!(
                "X-Repo-Commit: {}\r\nETag: \"a\"\r\nContent-Length: 3\r\n",
                "e".repeat(40)
            );
            respond(stream, "200 OK", &headers, b"");
        }
        is
    });
    let world = server.world();
    let text = pull_err(&world, ID);
    assert!(
        text.contains("config.json comes from commit eeee") && text.contains(COMMIT),
        "{text}"
    );
    assert!(!repo_folder(&world).join("refs/main").exists());
}

#[test]
fn of_several_quantizations_one_is_taken_with_a_note_or_as_picked() {
    let server = HubServer::start(Repo::gguf());
    let world = server.world();
    let (pulled, told) = pull(&world, ID);
    let pulled = pulled.unwrap();
    assert!(pulled.model.path.ends_with("tiny-Q4_K_M.gguf"));
    assert_eq!((pulled.model.kind, pulled.bytes), (ModelKind::Gguf, 2000));
    let note = told.iter().find_map(|step| match step {
        Progress::Note(note) => Some(note.as_str()),
        _ => None,
    });
    assert!(note.unwrap().contains("Q4_K_M, Q8_0"), "{note:?}");
    assert!(
        pull_ok(&world, "org/tiny:q8_0")
            .model
            .path
            .ends_with("tiny-Q8_0.gguf")
    );
    assert!(pull_ok(&world, "org/tiny:tiny-Q8_0.gguf").was_there);
    let text = pull_err(&world, "org/tiny:Q5_K_M");
    assert!(
        text.contains("no GGUF file 'Q5_K_M'") && text.contains("Q4_K_M, Q8_0"),
        "{text}"
    );
    let names: Vec<String> = world.hub().cached().into_iter().map(|model| model.name).collect();
    assert_eq!(names, ["org/tiny:Q4_K_M", "org/tiny:Q8_0"]);
    let Located::Local(found) = world.hub().resolve(Some("org/tiny:Q8_0")).unwrap() else {
        panic!("it is there");
    };
    assert!(found.path.ends_with("tiny-Q8_0.gguf"));
}

#[test]
fn a_dropped_connection_is_resumed_where_it_broke() {
    let repo = Repo::folder();
    let sent = repo.clone();
    let server = HubServer::with(
        repo,
        |_, _| false,
        move |_, request, stream| {
            let cut = if request.header("range").is_none() {
                60_000
            } else {
                usize::MAX
            };
            send_cut(request, stream, sent.bytes(blob_name(request)), cut);
        },
    );
    let world = server.world();
    let pulled = pull_ok(&world, ID);
    for name in [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ] {
        assert_eq!(
            std::fs::read(pulled.model.path.join(name)).unwrap(),
            server.repo.bytes(name)
        );
    }
    let ranges: Vec<Request> = server.cdn.requests();
    let resumed = ranges
        .iter()
        .filter(|request| request.header("range") == Some("bytes=60000-"));
    assert_eq!(resumed.count(), 2);
}

#[test]
fn a_stopped_pull_keeps_what_came_and_the_next_one_goes_on_from_there() {
    let repo = Repo::new(&[("config.json", b"{}"), ("model.safetensors", &noise(9, 300_000))]);
    let sent = repo.clone();
    let server = HubServer::with(
        repo,
        |_, _| false,
        move |count, request, stream| {
            let bytes = sent.bytes(blob_name(request));
            if count == 0 {
                send_cut(request, stream, bytes, 100_000);
                until_closed(stream);
            } else {
                send_file(request, stream, bytes);
            }
        },
    );
    let mut world = server.world();
    world.settings.patience = Some(std::time::Duration::from_secs(3600));
    let cancel = Cancel::new();
    let mut stop = |step| {
        if matches!(
            step,
            Progress::DownloadingFiles {
                done: 100_002,
                finished: 1,
                files: 2,
                ..
            }
        ) {
            cancel.cancel();
        }
    };
    let error = world.hub().pull(Some(ID), &mut stop, &cancel).unwrap_err();
    assert!(
        matches!(error, HubError::Interrupted { kept: 100_002, .. }),
        "{error}"
    );
    assert!(world.hub().cached().is_empty(), "half a model is none");
    pull_ok(&world, ID);
    let requests = server.cdn.requests();
    assert_eq!(requests.last().unwrap().header("range"), Some("bytes=100000-"));
    let leftover = std::fs::read_dir(repo_folder(&world).join("blobs")).unwrap();
    assert_eq!(leftover.count(), 2);
}

#[test]
fn two_pulls_at_once_download_each_file_once() {
    let server = HubServer::start(Repo::folder());
    let world = server.world();
    let pulled: Vec<_> = std::thread::scope(|scope| {
        let each = || scope.spawn(|| pull_ok(&world, ID));
        let threads = [each(), each(), each()];
        threads.map(|thread| thread.join().unwrap()).into_iter().collect()
    });
    assert_eq!(server.downloads(), 5);
    assert!(pulled.iter().all(|one| one.model.path == pulled[0].model.path));
    assert!(
        pulled[0]
            .model
            .path
            .join("model-00002-of-00002.safetensors")
            .is_file()
    );
}

#[test]
fn a_killed_process_leaves_what_the_next_one_resumes() {
    let repo = Repo::new(&[("config.json", b"{}"), ("model.safetensors", &noise(9, 300_000))]);
    let sent = repo.clone();
    let (arrived, wait) = mpsc::channel();
    let arrived = Mutex::new(arrived);
    let server = HubServer::with(
        repo,
        |_, _| false,
        move |count, request, stream| {
            let bytes = sent.bytes(blob_name(request));
            if count == 0 {
                send_cut(request, stream, bytes, 100_000);
                arrived.lock().unwrap().send(()).unwrap();
                until_closed(stream);
            } else {
                send_file(request, stream, bytes);
            }
        },
    );
    let world = server.world();
    let command = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_mlx-chat"));
        command
            .args(["models", "pull", ID, "--json"])
            .env_clear()
            .env("HOME", world.folder.path());
        command
            .envs(&world.vars)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null());
        command
    };
    let mut child = command().spawn().unwrap();
    wait.recv().unwrap();
    let part = repo_folder(&world)
        .join("blobs")
        .join(format!("{}.incomplete", server.repo.tag("model.safetensors").0));
    while std::fs::metadata(&part).map_or(0, |meta| meta.len()) < 100_000 {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let output = command().output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&printed["was_there"], &printed["bytes"]),
        (&false.into(), &300_002.into())
    );
    assert_eq!(
        server.cdn.requests().last().unwrap().header("range"),
        Some("bytes=100000-")
    );
    let path = std::path::Path::new(printed["path"].as_str().unwrap()).join("model.safetensors");
    assert_eq!(
        std::fs::read(path).unwrap(),
        server.repo.bytes("model.safetensors")
    );
}

#[test]
fn what_another_program_put_into_the_cache_is_found_and_a_partial_one_is_not() {
    // As huggingface_hub lays it out.
    let world = HubServer::start(Repo::folder()).world();
    let folder = repo_folder(&world);
    let snapshot = folder.join("snapshots").join(COMMIT);
    for path in [folder.join("blobs"), folder.join("refs"), snapshot.clone()] {
        std::fs::create_dir_all(path).unwrap();
    }
    std::fs::write(folder.join("refs/main"), COMMIT).unwrap();
    std::fs::write(folder.join("blobs/aa"), "{}").unwrap();
    std::fs::write(folder.join("blobs/bb"), "weights").unwrap();
    let link = |blob: &str, name: &str| {
        std::os::unix::fs::symlink(format!("../../blobs/{blob}"), snapshot.join(name)).unwrap();
    };
    link("aa", "config.json");
    let remote = || matches!(world.hub().resolve(Some(ID)).unwrap(), Located::Repository(_));
    assert!(remote(), "no weights");
    link("missing", "model.safetensors");
    assert!(remote(), "a link to nothing");
    std::fs::remove_file(snapshot.join("model.safetensors")).unwrap();
    link("bb", "model.safetensors");
    assert!(!remote());
    std::fs::create_dir(folder.join("trees")).unwrap();
    let tree = r#"{"format_version": 1, "files": {"config.json": {}, "tokenizer.json": {}, "model.safetensors": {}}}"#;
    std::fs::write(folder.join("trees").join(format!("{COMMIT}.json")), tree).unwrap();
    assert!(remote(), "its listing names a tokenizer that isn't there");
    link("aa", "tokenizer.json");
    let cached = world.hub().cached();
    assert_eq!(
        (cached[0].name.as_str(), cached[0].bytes),
        (ID, 9),
        "a shared blob counts once"
    );
}

#[test]
fn opening_by_name_pulls_once_and_then_asks_nobody() {
    let server = HubServer::start(Repo::gguf());
    let world = server.world();
    let first = world.hub().ensure(Some(ID), &mut |_| {}, &Cancel::new()).unwrap();
    let before = server.hub.requests().len();
    let second = world.hub().ensure(Some(ID), &mut |_| {}, &Cancel::new()).unwrap();
    assert_eq!((first.path, server.hub.requests().len()), (second.path, before));
}
