//! What is wrong with a folder is said by the name of the tensor, the setting or the file.

use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use super::{Folder, Tensor, Weights, config, save, weights};

const MODULE: &str = "model.layers.0.mlp.up_proj";

/// A folder in which one matrix is stored in 4 bits.
fn quantized(quantization: Value, change: impl Fn(&mut Weights)) -> Folder {
    let mut all = weights();
    let words = Tensor {
        dtype: Dtype::U32,
        shape: vec![48, 4],
        bytes: vec![0x21; 48 * 16],
    };
    all.insert(format!("{MODULE}.weight"), words);
    all.insert(format!("{MODULE}.scales"), Tensor::f32(&[48, 1], 1));
    all.insert(format!("{MODULE}.biases"), Tensor::f32(&[48, 1], 2));
    change(&mut all);
    let mut settings = config();
    settings["quantization"] = quantization;
    Folder::new(&settings, &all)
}

fn four_bits() -> Value {
    json!({"bits": 4, "group_size": 32})
}

#[test]
fn packed_weights_without_scales_or_biases_are_named() {
    let without = |part: &str| {
        let part = format!("{MODULE}.{part}");
        quantized(four_bits(), move |all| {
            all.remove(&part);
        })
        .error()
    };
    assert_eq!(
        without("scales"),
        format!(
            "the weights lack {MODULE}.scales, though {MODULE}.weight is of type U32, as only quantized weights are; \
             fetch the model again"
        )
    );
    assert_eq!(
        without("biases"),
        format!("the weights lack {MODULE}.biases (shape [48, 1])")
    );
}

#[test]
fn a_quantization_of_one_module_is_an_object_or_yes_or_no() {
    let with = |value: Value| {
        let mut quantization = four_bits();
        quantization[MODULE] = value;
        quantized(quantization, |_| ())
    };
    with(json!(true)).load().unwrap();
    assert_eq!(
        with(json!(false)).error(),
        format!(
            "quantization.{MODULE} is false, but must be given with bits and group_size in config.json, \
             since {MODULE} has scales"
        )
    );
    for value in [json!("4bit"), json!(4), json!([4, 32]), Value::Null] {
        let expected = format!(
            "quantization.{MODULE} is {value}, but must be true, false, or an object with bits and group_size"
        );
        assert_eq!(with(value).error(), expected);
    }
    let mut head = four_bits();
    head["lm_head"] = json!("none");
    let error = quantized(head, |_| ()).error();
    assert!(error.starts_with("quantization.lm_head is \"none\""), "{error}");
}

#[test]
fn a_part_of_the_weights_that_lacks_is_named_though_no_index_tells_of_it() {
    let folder = Folder::new(&config(), &Weights::new());
    std::fs::remove_file(folder.file("model.safetensors")).unwrap();
    let part = |number: usize| format!("model-{number:05}-of-00004.safetensors");
    let all: Vec<(String, Tensor)> = weights().into_iter().collect();
    let (first, second) = all.split_at(5);
    save(&first.iter().cloned().collect(), &folder.file(&part(1)));
    save(&second.iter().cloned().collect(), &folder.file(&part(3)));
    let error = folder.error();
    let expected = format!("lacks {} and 1 more, which the names", part(2));
    assert!(error.contains(&expected), "{error}");
    save(&Weights::new(), &folder.file(&part(2)));
    let error = folder.error();
    assert!(error.contains(&format!("lacks {}, which", part(4))), "{error}");
    save(&Weights::new(), &folder.file(&part(4)));
    folder.load().unwrap();
}

#[test]
fn a_type_that_nobody_knows_is_named_with_its_tensor_and_file() {
    let folder = Folder::new(&config(), &weights());
    let file = folder.file("model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    let length = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let header = String::from_utf8(bytes[8..8 + length].to_vec()).unwrap();
    let mut header: Value = serde_json::from_str(&header).unwrap();
    header[format!("{MODULE}.weight")]["dtype"] = json!("F31");
    let header = header.to_string();
    let whole = [
        &(header.len() as u64).to_le_bytes()[..],
        header.as_bytes(),
        &bytes[8 + length..],
    ];
    std::fs::write(&file, whole.concat()).unwrap();
    let error = folder.error();
    let start = format!("{MODULE}.weight in ");
    assert!(error.starts_with(&start), "{error}");
    assert!(
        error.contains("model.safetensors is of type F31, expected F32, F16 or BF16"),
        "{error}"
    );
}

#[test]
fn a_model_type_that_is_absent_or_no_text_is_called_so() {
    let with = |value: Value| {
        let mut settings = config();
        settings["model_type"] = value;
        Folder::new(&settings, &weights()).error()
    };
    let error = with(Value::Null);
    assert!(
        error.starts_with("model_type is absent, but must be one of llama, mistral, "),
        "{error}"
    );
    let error = with(json!(3));
    assert!(
        error.starts_with("model_type is 3, but must be one of"),
        "{error}"
    );
}
