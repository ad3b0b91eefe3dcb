use mlx_chat::gguf::Gguf;
use proptest::prelude::*;

use super::writer::{Writer, array, entry, text};
use super::{on_disk, open, refusal};

pub fn valid() -> Writer {
    let names = [text("a"), text("bc")].concat();
    Writer::new()
        .entry("general.architecture", 8, &text("llama"))
        .entry("general.alignment", 4, &32_u32.to_le_bytes())
        .entry("tokens", 9, &array(8, 2, &names))
        .entry("nested", 9, &array(9, 1, &array(6, 1, &1.0_f32.to_le_bytes())))
        .tensor("dense", &[4, 2], 0, &[1; 32])
        .tensor("quantized", &[32, 2], 3, &[1; 40])
}

fn with_tensor(change: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = valid();
    change(&mut writer);
    writer.bytes()
}

/// Reads everything that an accepted file offers.
pub fn read_all(file: &Gguf) {
    for info in file.tensors() {
        if let Ok(tensor) = file.tensor(&info.name) {
            assert_eq!(tensor.to_f32().unwrap().len(), info.elements());
            if let Some(affine) = tensor.to_affine() {
                assert_eq!(affine.weight.len() * 32, info.elements() * affine.bits);
                assert_eq!(affine.scales.len() * affine.group_size, info.elements());
            }
            tensor.to_mxfp4();
            let last = tensor
                .part(info.shape[0] - 1..info.shape[0], info.shape[0])
                .unwrap();
            file.release(&last);
        }
    }
}

#[test]
fn the_file_that_these_tests_damage_is_right() {
    read_all(&open(&valid().bytes()).unwrap());
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = valid().bytes();
    let file = on_disk(&bytes);
    for length in 0..bytes.len() {
        std::fs::write(&file.path, &bytes[..length]).unwrap();
        let error = Gguf::open(&file.path).err().map(|error| error.to_string());
        assert!(
            error.is_some(),
            "cut to {length} of {} bytes, it was accepted",
            bytes.len()
        );
    }
}

#[test]
fn what_a_file_looks_like_instead_is_said() {
    for (bytes, said) in [
        (&b""[..], "empty"),
        (b"PK\x03\x04....", "zip"),
        (b"\x10\0\0\0\0\0\0\0{\"a\":{}}", "safetensors"),
        (b"{\"error\": 1}", "JSON"),
        (b"<!DOCTYPE html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
        (b"tjgg\x01\0\0\0", "GGJT"),
        (b"hello there\n", "plain text"),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0", "zeros"),
        (b"\x80\x02}q", "pickle"),
        (b"\xde\xad\xbe\xef\x01", "de ad be ef"),
        (b"GG", "plain text"),
    ] {
        let message = refusal(bytes);
        assert!(
            message.contains(said) && message.contains("model.gguf"),
            "{message}"
        );
    }
}

#[test]
fn folders_and_missing_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let message = Gguf::open(folder.path()).unwrap_err().to_string();
    assert!(message.contains("a folder"), "{message}");
    let missing = folder.path().join("none.gguf");
    let message = Gguf::open(&missing).unwrap_err().to_string();
    assert!(message.contains("none.gguf"), "{message}");
}

#[test]
fn other_versions_and_byte_orders_are_refused() {
    for (version, said) in [
        (0, "version 0"),
        (1, "too old"),
        (4, "version 4"),
        (3_u32.swap_bytes(), "big-endian"),
        (1_u32.swap_bytes(), "big-endian"),
    ] {
        let message = refusal(&with_tensor(|writer| writer.version = version));
        assert!(message.contains(said), "{message}");
    }
}

#[test]
fn counts_that_the_file_cannot_hold_are_refused_before_anything_is_allocated() {
    let bytes = valid().bytes();
    for (at, what) in [(8, "tensors"), (16, "metadata entries")] {
        for count in [u64::MAX, 1 << 60, 1 << 32, bytes.len() as u64] {
            let mut bytes = bytes.clone();
            bytes[at..at + 8].copy_from_slice(&count.to_le_bytes());
            let message = refusal(&bytes);
            assert!(message.contains(&format!("{count} {what}")), "{message}");
        }
    }
    for count in [u64::MAX, 1 << 61, 1 << 40, 1000] {
        for kind in [0, 4, 7, 8, 9, 12] {
            let bytes = Writer::new().entry("k", 9, &array(kind, count, &[0; 24])).bytes();
            let message = refusal(&bytes);
            assert!(
                message.contains("`k`") && message.contains(&count.to_string()),
                "{message}"
            );
        }
        let long = [&count.to_le_bytes()[..], b"short"].concat();
        assert!(refusal(&Writer::new().entry("k", 8, &long).bytes()).contains("`k`"));
    }
}

#[test]
fn names_and_keys_are_unique() {
    let message = refusal(&with_tensor(|writer| {
        writer.entries.push(entry("tokens", 7, &[1]))
    }));
    assert!(message.contains("`tokens` is there twice"), "{message}");
    let message = refusal(&with_tensor(|writer| writer.tensors[1].name = "dense".into()));
    assert!(message.contains("`dense` is there twice"), "{message}");
}

#[test]
fn dimensions_that_cannot_be_are_refused() {
    for dims in [
        vec![],
        vec![0],
        vec![4, 0],
        vec![u64::MAX, 2],
        vec![1 << 32, 1 << 32],
        vec![1; 5],
    ] {
        let message = refusal(&with_tensor(|writer| writer.tensors[0].dims = dims.clone()));
        assert!(
            message.contains("`dense`") && message.contains("dimension"),
            "{dims:?}: {message}"
        );
    }
}

#[test]
fn a_size_in_bytes_that_overflows_is_refused() {
    let message = refusal(&with_tensor(|writer| writer.tensors[0].dims = vec![1 << 62, 2]));
    assert!(
        message.contains("`dense`") && message.contains("outside"),
        "{message}"
    );
}

#[test]
fn tensors_lie_inside_the_file_aligned_and_apart() {
    for (offset, said) in [
        (u64::MAX - 31, "outside"),
        (1 << 40, "outside"),
        (96, "outside"),
        (33, "multiple of the alignment"),
        (0, "overlap"),
    ] {
        let message = refusal(&with_tensor(|writer| writer.tensors[1].offset = Some(offset)));
        assert!(message.contains(said), "{offset}: {message}");
    }
}

#[test]
fn a_type_or_shape_that_the_bytes_are_not_is_noticed() {
    // More bytes than the type and shape have; a last tensor of which some are left; one that needs more; a first one that
    // isn't at the start.
    let message = refusal(&with_tensor(|writer| writer.tensors[0].data = vec![1; 64]));
    assert!(
        message.contains("`dense` ends at byte") && message.contains("(F32)"),
        "{message}"
    );
    let message = refusal(&with_tensor(|writer| writer.tensors[1].kind = 2));
    assert!(message.contains("bytes follow its last tensor"), "{message}");
    let message = refusal(&with_tensor(|writer| writer.tensors[1].kind = 8));
    assert!(message.contains("`quantized` lies outside"), "{message}");
    let message = refusal(&with_tensor(|writer| writer.tensors[0].offset = Some(32)));
    assert!(message.contains("begins at byte"), "{message}");
}

#[test]
fn a_row_that_blocks_do_not_divide_is_refused() {
    let message = refusal(&with_tensor(|writer| writer.tensors[1].dims = vec![16, 4]));
    assert!(
        message.contains("`quantized`") && message.contains("Q4_1"),
        "{message}"
    );
}

#[test]
fn an_alignment_is_a_power_of_two() {
    for value in [0_u32, 3, 1 << 31] {
        let file = Writer::new().entry("general.alignment", 4, &value.to_le_bytes());
        assert!(refusal(&file.bytes()).contains("general.alignment"));
    }
    assert!(
        refusal(&Writer::new().entry("general.alignment", 8, &text("32")).bytes()).contains("the string")
    );
}

#[test]
fn arrays_nest_to_a_bound() {
    let mut value = array(0, 0, &[]);
    for _ in 0..10_000 {
        value = array(9, 1, &value);
    }
    assert!(refusal(&Writer::new().entry("k", 9, &value).bytes()).contains("deep"));
}

#[test]
fn values_that_cannot_be_are_refused() {
    for (kind, value, said) in [
        (7, &[2][..], "boolean"),
        (13, &[0; 8], "type number 13"),
        (9, &array(99, 0, &[]), "type number 99"),
        (8, &[1, 0, 0, 0, 0, 0, 0, 0, 0xff], "UTF-8"),
    ] {
        let message = refusal(&Writer::new().entry("some.key", kind, value).bytes());
        assert!(
            message.contains("`some.key`") && message.contains(said),
            "{message}"
        );
    }
}

#[test]
fn padding_may_follow_the_last_tensor_but_nothing_else() {
    let mut bytes = valid().bytes();
    bytes.extend([0; 4096]);
    assert!(open(&bytes).is_ok());
    bytes.push(1);
    let message = refusal(&bytes);
    assert!(message.contains("4097 bytes follow"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), headed: bool) {
        let head: &[u8] = if headed { b"GGUF\x03\0\0\0" } else { b"" };
        if let Ok(file) = open(&[head, &bytes].concat()) {
            read_all(&file);
        }
    }

    #[test]
    fn a_changed_file_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        whole: bool,
    ) {
        let mut bytes = valid().bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(file) = open(&bytes) {
            read_all(&file);
        }
    }
}
