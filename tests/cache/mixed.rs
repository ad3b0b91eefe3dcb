//! A model of layers of all kinds in either layout: it writes what a row's tokens say, and looks at what is there.

use cpu_kernels::Team;
use cpu_kernels::attention::{
    Attention, CodeLayout, KvCodes, KvLayout as KvLayoutOfKernels, KvMut, Scratch, Segment, attend,
};
use mlx_chat::cache::{
    BatchCache, CachePlan, GROWTH, KvLayout, KvQuantization, KvScheme, KvShape, LayerCache, LayerPlan,
    Layers, PANEL, RecurrentShape, RowCache, Sight,
};
use mlx_chat::nn::Backend;
use mlx_chat::nn::kernels::{InPlaceNode, RoomMut};
use mlx_rs::{Array, Dtype};

use crate::Random;

/// The most tokens of a forward.
pub const CHUNK: usize = 300;

const KV: KvShape = KvShape {
    heads: 2,
    key_dim: 3,
    value_dim: 4,
    dtype: Dtype::Float32,
    scheme: KvScheme::Full,
};
const WIDE: KvShape = KvShape {
    heads: 1,
    key_dim: 2,
    value_dim: 17,
    dtype: Dtype::Float32,
    scheme: KvScheme::Full,
};
const STATE: RecurrentShape = RecurrentShape {
    conv: 3,
    conv_features: 2,
    heads: 2,
    value_dim: 3,
    key_dim: 2,
    dtype: Dtype::Float32,
};

pub fn sliding(window: usize) -> LayerPlan {
    LayerPlan::Sliding { kv: KV, window }
}

/// Two windows, one of them twice, and a layer that sees everything.
pub fn windows(a: usize, b: usize) -> Vec<LayerPlan> {
    let kv = WIDE;
    vec![
        sliding(a),
        LayerPlan::Full(KV),
        LayerPlan::Sliding { kv, window: b },
        sliding(a),
    ]
}

/// Quantized layers of all kinds beside others.
pub fn quantized(a: usize, b: usize) -> Vec<LayerPlan> {
    let held = |bits, group_size, heads, dim| {
        KvShape::float32(heads, dim, 2 * dim)
            .with_scheme(KvScheme::Quantized(KvQuantization { bits, group_size }))
    };
    vec![
        LayerPlan::Full(held(4, 32, 2, 32)),
        LayerPlan::Sliding {
            kv: held(8, 32, 1, 64),
            window: a,
        },
        LayerPlan::Recurrent(STATE),
        LayerPlan::Sliding {
            kv: held(4, 64, 1, 64),
            window: b,
        },
        sliding(a),
        LayerPlan::Full(held(8, 64, 1, 64)),
    ]
}

/// The same with a recurrent layer in front and one among them.
pub fn hybrid(a: usize, b: usize) -> Vec<LayerPlan> {
    let mut layers = windows(a, b);
    layers.insert(0, LayerPlan::Recurrent(STATE));
    layers.insert(3, LayerPlan::Recurrent(STATE));
    layers
}

pub fn plans(layers: &[LayerPlan]) -> [CachePlan; 2] {
    Backend::Cpu.enter();
    [
        CachePlan::new(layers.to_vec()),
        CachePlan::own_buffers(layers.to_vec()),
    ]
}

/// A key's elements, then a value's, of one head. Where they are quantized: codes, of which every group has the least and the
/// largest, so that what is held is what was given.
fn elements(kv: KvShape, token: u32, head: usize) -> Vec<f32> {
    let dims = 0..kv.key_dim + kv.value_dim;
    let KvScheme::Quantized(by) = kv.scheme else {
        return dims
            .map(|d| (token as usize * 64 + head * 32 + d) as f32)
            .collect();
    };
    let most = (1 << by.bits) - 1;
    let code = |d: usize| match d % 32 {
        0 => 0,
        1 => most,
        _ => (token as usize * 7919 + head * 31 + d * 13) / 3 % (most + 1),
    };
    dims.map(|d| code(d) as f32).collect()
}

/// Keys or values of these tokens, `[heads, tokens, dim]`.
fn flat(kv: KvShape, tokens: &[u32], values: bool) -> Vec<f32> {
    let mut out = Vec::new();
    for head in 0..kv.heads {
        for &token in tokens {
            let (key, value) = (elements(kv, token, head), kv.key_dim);
            out.extend(if values { &key[value..] } else { &key[..value] });
        }
    }
    out
}

/// What a recurrent layer has come to after these tokens.
fn state(tokens: &[u32]) -> (Vec<f32>, Vec<f32>) {
    let mut conv = vec![0.0; STATE.conv_len()];
    let mut state = vec![0u32; STATE.state_len()];
    for &token in tokens {
        conv.drain(..STATE.conv_features);
        conv.extend((0..STATE.conv_features).map(|feature| (token * 4) as f32 + feature as f32));
        for (element, state) in (0..).zip(&mut state) {
            *state = (*state * 3 + token + element) % 8191;
        }
    }
    (conv, state.into_iter().map(|element| element as f32).collect())
}

/// The tokens that the one at `position` sees.
fn seen(tokens: &[u32], position: usize, window: Option<usize>) -> &[u32] {
    let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
    &tokens[first..=position]
}

fn floats(array: &Array) -> Vec<f32> {
    array.contiguous().unwrap().to_vec_exact().unwrap()
}

fn array(data: &[f32], shape: &[usize]) -> Array {
    Array::from_slice(data, &shape.iter().map(|&n| n as i32).collect::<Vec<_>>())
}

/// The model. A row is on the host what it was fed: tokens that no other row has.
pub struct Mixed {
    pub plan: CachePlan,
    kernels: Vec<InPlaceNode>,
    fresh: u32,
}

impl Mixed {
    pub fn new(plan: CachePlan) -> Self {
        let kernels = plan.layers().iter().map(|&layer| kernel(layer)).collect();
        Self {
            plan,
            kernels,
            fresh: 0,
        }
    }

    pub fn row(&mut self, len: usize, pieces: &mut Random) -> (RowCache, Vec<u32>) {
        let (mut row, mut tokens) = (RowCache::new(&self.plan), Vec::new());
        while tokens.len() < len {
            let piece = (1 + pieces.below(CHUNK)).min(len - tokens.len());
            self.feed(&mut row, &mut tokens, piece);
        }
        (row, tokens)
    }

    pub fn feed(&mut self, row: &mut RowCache, tokens: &mut Vec<u32>, added: usize) {
        self.forward(row, &mut [tokens], added);
    }

    pub fn step(&mut self, batch: &mut BatchCache, rows: &mut [Vec<u32>]) {
        self.forward(batch, &mut rows.iter_mut().collect::<Vec<_>>(), 1);
    }

    /// Feeds `added` tokens to each row, and checks all that layers are given.
    fn forward(&mut self, caches: &mut dyn Layers, rows: &mut [&mut Vec<u32>], added: usize) {
        for row in rows.iter_mut() {
            for _ in 0..added {
                self.fresh += 1;
                row.push(self.fresh);
            }
        }
        let rows: Vec<&[u32]> = rows.iter().map(|row| row.as_slice()).collect();
        let windows = self.plan.windows();
        let sights: Vec<Option<Sight>> = windows
            .iter()
            .map(|&window| caches.sight(window, added))
            .collect();
        let mut last = Array::from_f32(0.0);
        for (layer, &plan) in self.plan.layers().iter().enumerate() {
            let sight = windows.iter().position(|&window| plan.sees() == Some(window));
            let sight = sight.and_then(|at| sights[at].as_ref());
            let cache = caches.layer(layer);
            match (self.plan.layout(), plan) {
                (KvLayout::OwnBuffers, _) => {
                    let given = given(plan, &rows, added);
                    let given: Vec<Array> = given.iter().map(|data| array(data, &[data.len()])).collect();
                    let inputs: Vec<&Array> = given.iter().chain([&last]).collect();
                    let rooms = cache.rooms(added).unwrap();
                    assert_eq!(rooms.len(), rows.len());
                    let output = [(&[1][..], Dtype::Float32)];
                    [last] = self.kernels[layer].apply(&inputs, &rooms, output).unwrap();
                }
                (KvLayout::Columns, LayerPlan::Recurrent(_)) => run_on(cache, &rows, added),
                (KvLayout::Columns, LayerPlan::Full(kv) | LayerPlan::Sliding { kv, .. }) => {
                    look(cache, sight.expect("columns are looked at"), kv, &rows);
                }
            }
        }
        caches.wrote(&last).unwrap();
    }

    /// Every kernel found what it was to find.
    pub fn check(&self) {
        for kernel in &self.kernels {
            assert_eq!(kernel.take_fault(), None);
        }
    }

    /// A row holds what its last tokens say, as many of them as anyone will see.
    pub fn assert_row(&self, row: &RowCache, tokens: &[u32]) {
        assert_eq!(row.len(), Some(tokens.len()));
        for (layer, &plan) in self.plan.layers().iter().enumerate() {
            let found = row.positions(layer).unwrap();
            let (kv, least) = match plan {
                LayerPlan::Full(kv) => (kv, tokens.len()),
                LayerPlan::Sliding { kv, window } => (kv, tokens.len().min(window - 1)),
                LayerPlan::Recurrent(_) => {
                    let expected = if tokens.is_empty() {
                        Default::default()
                    } else {
                        state(tokens)
                    };
                    assert_eq!(found, expected, "layer {layer}");
                    continue;
                }
            };
            let held = found.0.len() / kv.heads / kv.key_dim;
            assert!(
                held >= least && held <= tokens.len(),
                "layer {layer} holds {held}"
            );
            let held = &tokens[tokens.len() - held..];
            assert_eq!(
                found,
                (flat(kv, held, false), flat(kv, held, true)),
                "layer {layer}"
            );
        }
        let (used, allocated) = (row.used_bytes(), row.allocated_bytes());
        assert!(used <= self.plan.used_bytes(tokens.len()) && used <= allocated);
        assert!(allocated <= self.plan.row_bytes(tokens.len(), CHUNK));
        self.check();
    }

    pub fn assert_batch(&self, batch: &BatchCache, rows: &[Vec<u32>]) {
        let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
        assert_eq!(batch.lengths(), lengths);
        assert_eq!(batch.width(), lengths.iter().copied().max().unwrap());
        let (used, allocated) = (batch.used_bytes(), batch.allocated_bytes());
        let reserved = rows.len() as u64 * self.plan.row_bytes(batch.width(), CHUNK);
        assert!(
            used <= allocated && allocated <= reserved,
            "{used} {allocated} {reserved}"
        );
        if self.plan.layout() == KvLayout::Columns {
            let held: usize = batch.arrays().iter().map(|array| array.nbytes()).sum();
            assert_eq!(held as u64, allocated, "what is said to be allocated is");
            let most = lengths.iter().map(|&len| self.plan.used_bytes(len)).sum::<u64>();
            assert_eq!(used, most);
        }
    }
}

/// Writes rows' new tokens to an attention layer in columns, and checks what they are given to see.
fn look(cache: LayerCache<'_>, sight: &Sight, kv: KvShape, rows: &[&[u32]]) {
    let added = sight.added;
    let new = |values| -> Vec<f32> {
        let last = rows.iter().map(|row| &row[row.len() - added..]);
        last.flat_map(|tokens| flat(kv, tokens, values)).collect()
    };
    let keys = array(&new(false), &[rows.len(), kv.heads, added, kv.key_dim]);
    let values = array(&new(true), &[rows.len(), kv.heads, added, kv.value_dim]);
    let seen = cache.append(&keys, &values).unwrap();
    let [keys, values] = seen.in_full().unwrap();
    for (view, dim, values) in [(&keys, kv.key_dim, false), (&values, kv.value_dim, true)] {
        assert_eq!(view.shape()[2] as usize, sight.columns);
        check_view(&floats(view), sight, kv, dim, values, rows);
    }
}

/// Takes rows' new tokens into a recurrent layer in columns, and checks what it held.
fn run_on(cache: LayerCache<'_>, rows: &[&[u32]], added: usize) {
    let states = |less: usize| {
        let (mut convs, mut all) = (Vec::new(), Vec::new());
        for row in rows {
            let (conv, state) = state(&row[..row.len() - less]);
            convs.extend(conv);
            all.extend(state);
        }
        (convs, all)
    };
    let recurrence = cache.recurrent(added).unwrap();
    assert_eq!(
        (floats(recurrence.conv()), floats(recurrence.state())),
        states(added)
    );
    let (conv, state) = states(0);
    let conv = array(&conv, &[rows.len(), STATE.conv, STATE.conv_features]);
    let shape = [rows.len(), STATE.heads, STATE.value_dim, STATE.key_dim];
    recurrence.store(conv, array(&state, &shape)).unwrap();
}

/// Of the first, one in the middle and the last of the new tokens: they see what they should, in order.
fn check_view(all: &[f32], sight: &Sight, kv: KvShape, dim: usize, values: bool, rows: &[&[u32]]) {
    for (row, tokens) in rows.iter().enumerate() {
        for token in [0, sight.added / 2, sight.added - 1] {
            let columns: Vec<usize> = sight.seen(row, token).collect();
            let mut found: Vec<f32> = Vec::new();
            for head in 0..kv.heads {
                for column in &columns {
                    let at = ((row * kv.heads + head) * sight.columns + column) * dim;
                    found.extend(&all[at..at + dim]);
                }
            }
            let position = tokens.len() - sight.added + token;
            let expected = flat(kv, seen(tokens, position, sight.window), values);
            assert_eq!(found, expected, "row {row}, token {token}, {sight:?}");
        }
    }
}

/// What a kernel is given: what it writes, and what it is to find; of recurrent layers the states after and before.
fn given(plan: LayerPlan, rows: &[&[u32]], added: usize) -> [Vec<f32>; 2] {
    let (mut new, mut found): (Vec<f32>, Vec<f32>) = Default::default();
    for tokens in rows {
        let before = tokens.len() - added;
        if let Some(kv) = plan.kv() {
            let window = plan.sees().flatten();
            for &token in &tokens[before..] {
                (0..kv.heads).for_each(|head| new.extend(elements(kv, token, head)));
            }
            for position in [before, tokens.len() - 1] {
                for &token in seen(tokens, position, window) {
                    (0..kv.heads).for_each(|head| found.extend(elements(kv, token, head)));
                }
            }
        } else {
            for (tokens, into) in [(*tokens, &mut new), (&tokens[..before], &mut found)] {
                let (conv, state) = state(tokens);
                into.extend(conv.into_iter().chain(state));
            }
        }
    }
    // MLX takes no empty arrays here.
    found.push(0.0);
    [new, found]
}

/// Writes the new positions of each room, then finds what the first and the last of them see.
fn kernel(plan: LayerPlan) -> InPlaceNode {
    InPlaceNode::new("Mixed", move |inputs, rooms, outputs| {
        let [new, found] = [0, 1].map(|input| inputs[input].as_slice::<f32>().expect("floats"));
        let (mut new, mut found) = (new.iter(), found.iter());
        let Some(kv) = plan.kv() else {
            for room in rooms.iter_mut() {
                for place in room.buffer.iter_mut() {
                    assert_eq!(Some(&*place), found.next(), "the state before");
                    *place = *new.next().expect("a state");
                }
            }
            return;
        };
        let window = plan.sees().flatten();
        let added = new.len() / (kv.heads * (kv.key_dim + kv.value_dim)) / rooms.len();
        for room in rooms.iter_mut() {
            let (start, end) = (room.start, room.start + added);
            let wide = kv.heads * (kv.key_dim + kv.value_dim);
            let given: Vec<f32> = new.by_ref().take(added * wide).copied().collect();
            let held = Held::of(kv, room);
            let needed = window.map_or(end, |window| end.min(window + added - 1));
            assert!(
                held.capacity().is_multiple_of(GROWTH) && held.capacity() >= needed,
                "{} for {needed}",
                held.capacity()
            );
            held.write(room, start, &given);
            for position in [start, end - 1] {
                let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
                // Where the last ones have overwritten what only the first sees, it is gone: not with this capacity.
                for element in (first..=position).flat_map(|position| held.read(room, position)) {
                    assert_eq!(Some(&element), found.next(), "seen from {position}");
                }
            }
        }
        outputs[0].as_mut_slice::<f32>().expect("floats").fill(0.0);
    })
}

/// How a room's buffer is read and written.
struct Held {
    kv: KvShape,
    capacity: usize,
    codes: Option<CodeLayout>,
}

impl Held {
    fn of(kv: KvShape, room: &RoomMut<'_>) -> Self {
        let layout = KvLayoutOfKernels {
            heads: kv.heads,
            key_dim: kv.key_dim,
            value_dim: kv.value_dim,
        };
        let codes = room.codes.as_ref().map(|codes| CodeLayout {
            kv: layout,
            codes: KvCodes {
                bits: codes.by.bits,
                group: codes.by.group_size,
            },
        });
        assert_eq!(codes.is_some(), kv.scheme != KvScheme::Full);
        let capacity = match (&codes, &room.codes) {
            (Some(layout), Some(codes)) => {
                assert_eq!(layout.panel(), kv.panel_len(), "both say how long a panel is");
                layout.capacity(codes.words.len())
            }
            _ => room.buffer.len() / kv.heads / kv.panel_len() * PANEL,
        };
        Self { kv, capacity, codes }
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    /// Writes positions from `start` on: of each, head by head, its key and its value.
    fn write(&self, room: &mut RoomMut<'_>, start: usize, given: &[f32]) {
        let KvShape {
            heads,
            key_dim,
            value_dim,
            ..
        } = self.kv;
        let wide = heads * (key_dim + value_dim);
        let (Some(layout), Some(codes)) = (&self.codes, &mut room.codes) else {
            for (position, elements) in (start..).zip(given.chunks(wide)) {
                for (place, element) in places(self.kv, self.capacity, position).zip(elements) {
                    room.buffer[place] = *element;
                }
            }
            return;
        };
        // As a model's layer does it, without queries that matter.
        let mut qkv = Vec::new();
        for elements in given.chunks(wide) {
            qkv.extend(vec![0.0; heads * key_dim]);
            let parts = || elements.chunks(key_dim + value_dim);
            parts().for_each(|head| qkv.extend(&head[..key_dim]));
            parts().for_each(|head| qkv.extend(&head[key_dim..]));
        }
        let tokens = given.len() / wide;
        let attention = Attention {
            heads,
            kv: layout.kv,
            codes: Some(layout.codes),
            scale: 1.0,
            window: Some(1),
            query_norm: None,
            key_norm: None,
            rope: None,
        };
        let kv = KvMut::Codes(codes.words);
        attend(
            &Team::new(1).expect("a team of one"),
            &mut Scratch::default(),
            &attention,
            &qkv,
            &mut [Segment { kv, start, tokens }],
            &mut vec![0.0; tokens * heads * value_dim],
        );
    }

    /// A position's elements: head by head, its key and its value.
    fn read(&self, room: &RoomMut<'_>, position: usize) -> Vec<f32> {
        let (Some(layout), Some(codes)) = (&self.codes, &room.codes) else {
            return places(self.kv, self.capacity, position)
                .map(|place| room.buffer[place])
                .collect();
        };
        let mut all = Vec::new();
        for head in 0..self.kv.heads {
            let (mut key, mut value) = (vec![0.0; self.kv.key_dim], vec![0.0; self.kv.value_dim]);
            layout.copy_key(codes.words, head, position, &mut key);
            layout.copy_value(codes.words, head, position, &mut value);
            all.extend(key.into_iter().chain(value));
        }
        all
    }
}

/// Where one position lies, head after head: its key's elements, then its value's.
fn places(kv: KvShape, capacity: usize, position: usize) -> impl Iterator<Item = usize> {
    let slot = position % capacity;
    (0..kv.heads).flat_map(move |head| {
        let panel = (head * capacity / PANEL + slot / PANEL) * kv.panel_len();
        let keys = (0..kv.key_dim).map(move |d| panel + d * PANEL + slot % PANEL);
        let values = panel + PANEL * kv.key_dim + slot % PANEL * kv.value_stride();
        keys.chain((0..kv.value_dim).map(move |d| values + d))
    })
}
