//! Writes GGUF files for tests: right ones, and ones that are wrong in a chosen place.

/// A file in the making. Entries and tensors are written as they are given.
pub struct Writer {
    pub version: u32,
    pub alignment: usize,
    pub entries: Vec<Vec<u8>>,
    pub tensors: Vec<RawTensor>,
}

/// A tensor as the file describes it: dimensions innermost first.
pub struct RawTensor {
    pub name: String,
    pub dims: Vec<u64>,
    pub kind: u32,
    pub data: Vec<u8>,
    /// Its offset in the data, where it shouldn't follow from the tensors before it.
    pub offset: Option<u64>,
}

pub fn text(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// An entry: its key, the number of its type, its value's bytes.
pub fn entry(key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [&text(key), &kind.to_le_bytes()[..], value].concat()
}

/// The bytes of an array: the number of its items' type, their count, the items.
pub fn array(kind: u32, count: u64, items: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &count.to_le_bytes(), items].concat()
}

impl Writer {
    pub fn new() -> Self {
        Self {
            version: 3,
            alignment: 32,
            entries: Vec::new(),
            tensors: Vec::new(),
        }
    }

    pub fn entry(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.entries.push(entry(key, kind, value));
        self
    }

    pub fn tensor(mut self, name: &str, dims: &[u64], kind: u32, data: &[u8]) -> Self {
        let (name, dims, data) = (name.to_owned(), dims.to_vec(), data.to_vec());
        self.tensors.push(RawTensor {
            name,
            dims,
            kind,
            data,
            offset: None,
        });
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend_from_slice(&self.version.to_le_bytes());
        file.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        file.extend_from_slice(&(self.entries.len() as u64).to_le_bytes());
        file.extend(self.entries.concat());
        let mut data = Vec::new();
        for tensor in &self.tensors {
            data.resize(data.len().next_multiple_of(self.alignment), 0);
            file.extend(text(&tensor.name));
            file.extend_from_slice(&(tensor.dims.len() as u32).to_le_bytes());
            for dim in &tensor.dims {
                file.extend_from_slice(&dim.to_le_bytes());
            }
            file.extend_from_slice(&tensor.kind.to_le_bytes());
            file.extend_from_slice(&tensor.offset.unwrap_or(data.len() as u64).to_le_bytes());
            data.extend_from_slice(&tensor.data);
        }
        if !data.is_empty() {
            file.resize(file.len().next_multiple_of(self.alignment), 0);
            file.extend(data);
        }
        file
    }
}
