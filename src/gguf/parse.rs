//! From the bytes of a GGUF file to its metadata and its table of tensors.

use std::collections::HashSet;
use std::path::Path;

use super::error::looks_like;
use super::{Array, GgufError, Kind, Metadata, TensorInfo, Value};

/// How deeply arrays may hold arrays.
const MAX_DEPTH: usize = 4;
/// The alignment of the tensors' bytes where `general.alignment` doesn't say.
const DEFAULT_ALIGNMENT: usize = 32;
/// Zeros that may follow the last tensor, in bytes: writers pad to a page or less.
const MAX_PADDING: usize = 64 << 10;
/// The fewest bytes that describe a tensor: its name's length, count of dimensions, one dimension, type,
/// offset.
const MIN_TENSOR_BYTES: usize = 8 + 4 + 8 + 4 + 8;
/// The fewest bytes of a metadata entry: its key's length, type, value.
const MIN_ENTRY_BYTES: usize = 8 + 4 + 1;

/// A file's metadata and table of tensors.
pub(super) struct Parsed {
    pub metadata: Metadata,
    pub tensors: Vec<TensorInfo>,
}

/// What is damaged, in words.
type Fault = String;

/// Reads and checks a whole file; `path` is for messages.
pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Parsed, GgufError> {
    let Some(rest) = bytes.strip_prefix(b"GGUF") else {
        let first = bytes.get(..256).unwrap_or(bytes);
        return Err(GgufError::NotGguf {
            path: path.to_owned(),
            looks_like: looks_like(first, path),
        });
    };
    if let Some(version) = rest.first_chunk::<4>() {
        let refused = |what| {
            Err(GgufError::Refused {
                path: path.to_owned(),
                what,
            })
        };
        match (u32::from_le_bytes(*version), u32::from_be_bytes(*version)) {
            (2 | 3, _) => {}
            (_, 1..=3) => {
                return refused("a big-endian GGUF file; use the little-endian one".to_owned());
            }
            (1, _) => {
                return refused("a GGUF file of version 1, which is too old; convert it again".to_owned());
            }
            (version, _) => {
                return refused(format!(
                    "a GGUF file of version {version}; versions 2 and 3 are read"
                ));
            }
        }
    }
    parse_body(bytes).map_err(|what| GgufError::Damaged {
        path: path.to_owned(),
        what,
    })
}

fn parse_body(bytes: &[u8]) -> Result<Parsed, Fault> {
    let mut reader = Reader { bytes, at: 8 };
    let tensor_count = reader.count("tensors", MIN_TENSOR_BYTES)?;
    let entry_count = reader.count("metadata entries", MIN_ENTRY_BYTES)?;
    let mut metadata = Metadata::default();
    for number in 1..=entry_count {
        let key = reader
            .string()
            .map_err(|fault| format!("metadata key {number} of {entry_count}: {fault}"))?;
        let value = reader
            .value()
            .map_err(|fault| format!("metadata key `{}`: {fault}", short(&key)))?;
        if metadata.get(&key).is_some() {
            return Err(format!("the metadata key `{}` is there twice", short(&key)));
        }
        metadata.insert(key, value);
    }
    let alignment = alignment(&metadata)?;
    let mut heads = Vec::new();
    let mut names = HashSet::new();
    for number in 1..=tensor_count {
        let head = reader
            .tensor_head()
            .map_err(|fault| format!("tensor {number} of {tensor_count}: {fault}"))?;
        if !names.insert(head.info.name.clone()) {
            return Err(format!("the tensor `{}` is there twice", short(&head.info.name)));
        }
        heads.push(head);
    }
    let tensors = place(heads, reader.at, alignment, bytes)?;
    Ok(Parsed { metadata, tensors })
}

fn alignment(metadata: &Metadata) -> Result<usize, Fault> {
    let Some(value) = metadata.get("general.alignment") else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    let found = value
        .as_integer()
        .and_then(|integer| usize::try_from(integer).ok());
    // A larger alignment than this is no use to any device; it would only hide a damaged value.
    found
        .filter(|alignment| alignment.is_power_of_two() && *alignment <= 1 << 30)
        .ok_or_else(|| {
            format!(
                "`general.alignment` should be a power of two up to 2^30, but is {}",
                value.describe()
            )
        })
}

/// A tensor's description, and its offset from the start of the data.
struct Head {
    info: TensorInfo,
    offset: u64,
}

/// A tensor's place in the file.
struct Place<'a> {
    start: usize,
    /// `None` for a type of which nothing is known.
    end: Option<usize>,
    info: &'a TensorInfo,
}

/// Gives each tensor its range in the file, having checked that they lie one after the other, without gaps but those that
/// the alignment asks for: else a type or a shape is not what the bytes are.
fn place(
    heads: Vec<Head>,
    header_end: usize,
    alignment: usize,
    file: &[u8],
) -> Result<Vec<TensorInfo>, Fault> {
    let data = header_end
        .checked_next_multiple_of(alignment)
        .ok_or("its header is too long")?;
    let mut tensors = Vec::with_capacity(heads.len());
    let mut spans = Vec::with_capacity(heads.len());
    for Head { mut info, offset } in heads {
        let name = short(&info.name).into_owned();
        let start = usize::try_from(offset)
            .ok()
            .filter(|offset| offset % alignment == 0);
        let start = start.ok_or_else(|| {
            format!("the offset {offset} of tensor `{name}` is not a multiple of the alignment {alignment}")
        })?;
        let outside = || {
            format!(
                "tensor `{name}` lies outside of the file (which ends after {} bytes)",
                file.len()
            )
        };
        let start = data
            .checked_add(start)
            .filter(|start| *start < file.len())
            .ok_or_else(outside)?;
        let mut end = None;
        if let Some((elements, bytes)) = info.kind.block() {
            if info.cols() % elements != 0 {
                let (kind, cols) = (info.kind, info.cols());
                return Err(format!(
                    "tensor `{name}` has rows of {cols} elements, which blocks of {elements} ({kind}) don't divide"
                ));
            }
            let length = (info.elements() / elements).checked_mul(bytes);
            let past = length.and_then(|length| start.checked_add(length));
            let past = past.filter(|end| *end <= file.len()).ok_or_else(outside)?;
            end = Some(past);
            if info.kind.is_read() {
                info.range = Some(start..past);
            }
        }
        tensors.push(info);
        spans.push((start, end));
    }
    let mut places: Vec<Place<'_>> = tensors
        .iter()
        .zip(spans)
        .map(|(info, (start, end))| Place { start, end, info })
        .collect();
    places.sort_by_key(|place| (place.start, place.end));
    check_neighbours(&places, data, alignment)?;
    // Behind a tensor of a type of which nothing is known, there is no telling where it ends.
    if let Some(end) = places.last().map_or(Some(header_end), |place| place.end) {
        let tail = file.get(end..).unwrap_or_default();
        if tail.len() > MAX_PADDING || tail.iter().any(|&byte| byte != 0) {
            return Err(format!(
                "{} bytes follow its last tensor, which ends at byte {end}",
                tail.len()
            ));
        }
    }
    Ok(tensors)
}

/// Checks that each tensor begins where the one before ends, up to alignment; `places` are in the file's order.
fn check_neighbours(places: &[Place<'_>], data: usize, alignment: usize) -> Result<(), Fault> {
    if let Some(first) = places.first().filter(|first| first.start != data) {
        return Err(format!(
            "its first tensor, `{}`, begins at byte {} where byte {data} was expected",
            short(&first.info.name),
            first.start
        ));
    }
    for pair in places.windows(2) {
        let [first, second] = pair else { continue };
        let Some(end) = first.end else { continue };
        let (one, other) = (short(&first.info.name), short(&second.info.name));
        if end > second.start {
            return Err(format!("tensors `{one}` and `{other}` overlap"));
        }
        if end.checked_next_multiple_of(alignment) != Some(second.start) {
            return Err(format!(
                "tensor `{one}` ends at byte {end} by its type ({}) and shape, but the next one, `{other}`, begins at byte {}",
                first.info.kind, second.start
            ));
        }
    }
    Ok(())
}

/// Enough of a name for a message.
fn short(name: &str) -> std::borrow::Cow<'_, str> {
    match name.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", name.get(..end).unwrap_or_default()).into(),
        None => name.into(),
    }
}

/// Reads forward through the file; every read is checked against its end.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let end = self.at.checked_add(length);
        let Some(taken) = end.and_then(|end| self.bytes.get(self.at..end)) else {
            let (at, left) = (self.at, self.remaining());
            return Err(format!(
                "the file ends too early ({length} bytes are due at byte {at}, {left} are left)"
            ));
        };
        self.at += length;
        Ok(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let bytes = self.take(N)?;
        bytes
            .first_chunk::<N>()
            .copied()
            .ok_or_else(|| "the file ends too early".to_owned())
    }

    fn u32(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.chunk()?))
    }

    fn u64(&mut self) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.chunk()?))
    }

    /// A count of things of at least `least` bytes each: one that the rest of the file can't hold is refused.
    fn count(&mut self, what: &str, least: usize) -> Result<usize, Fault> {
        let count = self.u64()?;
        let most = self.remaining() / least;
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= most)
            .ok_or_else(|| {
                format!(
                    "it claims {count} {what}, but the {} bytes left can't hold them",
                    self.remaining()
                )
            })
    }

    fn string(&mut self) -> Result<String, Fault> {
        let length = self.count("bytes of text", 1)?;
        let at = self.at;
        let text = std::str::from_utf8(self.take(length)?);
        text.map(str::to_owned)
            .map_err(|_| format!("the text at byte {at} is not UTF-8"))
    }

    fn bool(&mut self) -> Result<bool, Fault> {
        match self.chunk()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(format!("the boolean at byte {} is {other}", self.at - 1)),
        }
    }

    fn value(&mut self) -> Result<Value, Fault> {
        Ok(match self.u32()? {
            0 => Value::U8(u8::from_le_bytes(self.chunk()?)),
            1 => Value::I8(i8::from_le_bytes(self.chunk()?)),
            2 => Value::U16(u16::from_le_bytes(self.chunk()?)),
            3 => Value::I16(i16::from_le_bytes(self.chunk()?)),
            4 => Value::U32(u32::from_le_bytes(self.chunk()?)),
            5 => Value::I32(i32::from_le_bytes(self.chunk()?)),
            6 => Value::F32(f32::from_le_bytes(self.chunk()?)),
            7 => Value::Bool(self.bool()?),
            8 => Value::Str(self.string()?),
            9 => Value::Array(self.array(1)?),
            10 => Value::U64(u64::from_le_bytes(self.chunk()?)),
            11 => Value::I64(i64::from_le_bytes(self.chunk()?)),
            12 => Value::F64(f64::from_le_bytes(self.chunk()?)),
            other => {
                return Err(format!(
                    "its value is of type number {other}, which doesn't exist"
                ));
            }
        })
    }

    fn array(&mut self, depth: usize) -> Result<Array, Fault> {
        if depth > MAX_DEPTH {
            return Err(format!("arrays hold arrays more than {MAX_DEPTH} deep"));
        }
        Ok(match self.u32()? {
            0 => Array::U8(self.numbers(u8::from_le_bytes)?),
            1 => Array::I8(self.numbers(i8::from_le_bytes)?),
            2 => Array::U16(self.numbers(u16::from_le_bytes)?),
            3 => Array::I16(self.numbers(i16::from_le_bytes)?),
            4 => Array::U32(self.numbers(u32::from_le_bytes)?),
            5 => Array::I32(self.numbers(i32::from_le_bytes)?),
            6 => Array::F32(self.numbers(f32::from_le_bytes)?),
            7 => Array::Bool(self.items("booleans", 1, Self::bool)?),
            8 => Array::Str(self.items("strings", 8, Self::string)?),
            9 => Array::Array(self.items("arrays", 12, |reader| reader.array(depth + 1))?),
            10 => Array::U64(self.numbers(u64::from_le_bytes)?),
            11 => Array::I64(self.numbers(i64::from_le_bytes)?),
            12 => Array::F64(self.numbers(f64::from_le_bytes)?),
            other => {
                return Err(format!(
                    "its array is of type number {other}, which doesn't exist"
                ));
            }
        })
    }

    fn numbers<T, const N: usize>(&mut self, number: impl Fn([u8; N]) -> T) -> Result<Vec<T>, Fault> {
        let count = self.count("numbers", N)?;
        let bytes = self.take(count * N)?;
        Ok(bytes
            .as_chunks::<N>()
            .0
            .iter()
            .map(|chunk| number(*chunk))
            .collect())
    }

    fn items<T>(
        &mut self,
        what: &str,
        least: usize,
        item: impl Fn(&mut Self) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let count = self.count(what, least)?;
        // Grown as items turn up: `count` is only known to fit the file, and an item is larger here than
        // there.
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn tensor_head(&mut self) -> Result<Head, Fault> {
        let name = self.string()?;
        let named = |fault: Fault| format!("`{}`: {fault}", short(&name));
        let dimensions = self.u32().map_err(named)?;
        if !(1..=4).contains(&dimensions) {
            return Err(named(format!(
                "it has {dimensions} dimensions; 1 to 4 are possible"
            )));
        }
        let mut shape = Vec::with_capacity(4);
        let mut elements = 1_usize;
        for _ in 0..dimensions {
            let size = self.u64().map_err(named)?;
            let usable = usize::try_from(size).ok().filter(|size| *size > 0);
            let product = usable.and_then(|size| elements.checked_mul(size));
            let (Some(usable), Some(product)) = (usable, product) else {
                return Err(named(format!("its dimension of {size} can't be")));
            };
            elements = product;
            shape.push(usable);
        }
        shape.reverse();
        let kind = Kind::from_id(self.u32().map_err(named)?);
        let offset = self.u64().map_err(named)?;
        Ok(Head {
            info: TensorInfo {
                name,
                shape,
                kind,
                part: 0,
                range: None,
            },
            offset,
        })
    }
}
