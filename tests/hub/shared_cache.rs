//! `mlx-chat models list|info|rm` over the shared cache.

use mlx_chat::cli::models::ModelsCommand;
use mlx_chat::hub::HubError;
use serde_json::{Value, json};

use crate::command::run;
use crate::hub_server::*;
use crate::world::*;

fn list(world: &World) -> Vec<Value> {
    let (_, out, _) = run(world, ModelsCommand::List { json: true }, None).unwrap();
    serde_json::from_str(&out).unwrap()
}

fn blobs(world: &World) -> usize {
    std::fs::read_dir(repo_folder(world).join("blobs")).map_or(0, Iterator::count)
}

#[test]
fn list_shows_what_the_cache_holds_with_its_family_and_whether_it_is_supported() {
    let server = HubServer::start(Repo::folder());
    let world = server.world();
    pull_ok(&world, ID);
    let rows = list(&world);
    let row = rows.iter().find(|row| row["name"] == ID).unwrap();
    assert_eq!((&row["installed"], &row["cached"]), (&json!(true), &json!(true)));
    assert_eq!(
        (&row["family"], &row["supported"]),
        (&json!("o\u{1b}dd"), &json!(false))
    );
    assert_eq!(
        (&row["commit"], row["bytes"].as_u64() > Some(300_000)),
        (&json!(COMMIT), true)
    );
    let (_, out, _) = run(&world, ModelsCommand::List { json: false }, None).unwrap();
    assert!(out.contains("in the shared cache, not supported (o␛dd)"), "{out}");
}

#[test]
fn info_of_a_repository_reads_the_cache_and_says_how_to_get_what_is_not_there() {
    let server = HubServer::start(Repo::folder());
    let world = server.world();
    let info = |json| {
        let name = Some(ID.to_string());
        run(&world, ModelsCommand::Info { name, json }, None)
    };
    let text = info(false).unwrap_err().to_string();
    assert!(text.contains("mlx-chat models pull org/tiny"), "{text}");
    pull_ok(&world, ID);
    let told: Value = serde_json::from_str(&info(true).unwrap().1).unwrap();
    assert_eq!((&told["name"], &told["installed"]), (&json!(ID), &json!(true)));
    assert!(told["bytes"].as_u64() > Some(300_000));
}

/// Whoever may write to the cache could write to the terminal by a folder's name.
#[test]
fn folders_that_are_no_repositories_are_not_shown() {
    let server = HubServer::start(Repo::folder());
    let world = server.world();
    pull_ok(&world, ID);
    let root = repo_folder(&world).parent().unwrap().to_path_buf();
    for name in [
        "models--org--\u{1b}[31mred",
        "models--org--two\nlines",
        "models--a--b--c",
    ] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    let name = Some("nowhere".to_string());
    let error = run(&world, ModelsCommand::Info { name, json: false }, None).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains(ID) && !text.contains("red") && !text.contains("lines"),
        "{text:?}"
    );
    assert_eq!(list(&world).iter().filter(|row| row["cached"] == true).count(), 1);
}

#[test]
fn rm_asks_and_deletes_only_what_no_other_revision_uses() {
    let first = HubServer::start(Repo::folder());
    let mut world = first.world();
    let old = pull_ok(&world, ID);
    let mut moved = Repo::folder();
    moved.commit = "f".repeat(40);
    moved.files[1].1 = br#"{"model_type": "llama", "new": true}"#.to_vec();
    let second = HubServer::start(moved);
    world.var("HF_ENDPOINT", &second.hub.url(""));
    let new = pull_ok(&world, ID);
    assert_eq!(blobs(&world), 6);
    let rm = |yes, answer| {
        let name = ID.to_string();
        run(
            &world,
            ModelsCommand::Rm {
                name,
                yes,
                json: true,
            },
            answer,
        )
        .unwrap()
    };
    assert_eq!(rm(false, None).0, 2);
    let (code, _, err) = rm(false, Some("n\n"));
    assert!(
        code == 1 && err.contains("Delete model 'org/tiny' (293K)"),
        "{err}"
    );
    let (code, out, _) = rm(true, None);
    let freed: Value = serde_json::from_str(&out).unwrap();
    let only_new = std::fs::metadata(old.model.path.join("config.json"))
        .unwrap()
        .len()
        + 13;
    assert_eq!((code, freed["bytes"].as_u64()), (0, Some(only_new)));
    assert!(!new.model.path.exists() && !repo_folder(&world).join("refs/main").exists());
    assert_eq!(blobs(&world), 5);
    assert!(old.model.path.join("model-00001-of-00002.safetensors").is_file());
    world.hub().remove(&format!("{ID}@{COMMIT}")).unwrap();
    assert!(!repo_folder(&world).exists());
    assert!(matches!(world.hub().remove(ID), Err(HubError::NotInstalled(_))));
}

#[test]
fn rm_of_one_quantization_leaves_the_other() {
    let server = HubServer::start(Repo::gguf());
    let world = server.world();
    pull_ok(&world, "org/tiny:Q8_0");
    pull_ok(&world, ID);
    world.hub().remove("org/tiny:Q8_0").unwrap();
    let names: Vec<String> = world.hub().cached().into_iter().map(|model| model.name).collect();
    assert_eq!(names, [ID]);
    assert_eq!(blobs(&world), 1);
}

#[test]
fn rm_takes_what_an_unfinished_pull_left() {
    let server = HubServer::with(
        Repo::gguf(),
        |_, _| false,
        |_, request, stream| send_cut(request, stream, Repo::gguf().bytes(blob_name(request)), 100),
    );
    let mut world = server.world();
    world.settings.retry.attempts = 1;
    pull_err(&world, "org/tiny:Q8_0");
    assert_eq!(blobs(&world), 1);
    let removed = world.hub().remove(ID).unwrap();
    assert!(removed.bytes > 0 && !repo_folder(&world).exists());
}

#[test]
fn rm_of_a_revision_that_is_not_there_says_which_are() {
    let server = HubServer::start(Repo::gguf());
    let world = server.world();
    pull_ok(&world, ID);
    let text = world.hub().remove("org/tiny@v2").unwrap_err().to_string();
    assert!(
        text.contains("no revision 'v2'") && text.contains("main"),
        "{text}"
    );
    assert_eq!(world.hub().cached().len(), 1);
}
