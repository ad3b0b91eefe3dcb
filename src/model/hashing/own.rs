//! The hash by kernels, over own buffers: keys, values and halves of words are small numbers, which floats hold exactly.

use std::borrow::Cow;

use super::HashingLayer;
use super::arithmetic::{CONV, HALF, Running, layered, number, term};
use crate::cache::PANEL;
use crate::nn::kernels::{InPlaceNode, RoomMut, TensorView};

/// One layer's kernels.
pub(super) struct OwnKernels {
    /// Writes tokens `[ΣL]` to their rows; the states of what each row's last one sees, `[rows]`, to the next layer's.
    pub(super) see: InPlaceNode,
}

/// From one position's value to the next one's.
const STRIDE: usize = 16;
/// Floats of a panel with one head of one feature.
const PANEL_LEN: usize = PANEL * (1 + STRIDE);

/// Where a position's key and value are.
fn places(room: &RoomMut<'_>, position: usize) -> [usize; 2] {
    let slot = position % (room.buffer.len() / PANEL_LEN * PANEL);
    let (panel, at) = (slot / PANEL * PANEL_LEN, slot % PANEL);
    [panel + at, panel + PANEL + at * STRIDE]
}

fn put(room: &mut RoomMut<'_>, position: usize, key: u32) {
    let [key_at, value_at] = places(room, position);
    room.buffer[key_at] = key as f32;
    room.buffer[value_at] = position as f32;
}

fn get(room: &RoomMut<'_>, position: usize) -> (u32, u32) {
    let [key, value] = places(room, position).map(|at| room.buffer[at] as u32);
    (key, value)
}

/// A recurrent layer's room: the convolution's input, then the hash's halves.
fn running(room: &RoomMut<'_>) -> Running {
    let word = |at: usize| room.buffer[at] as u32;
    Running {
        conv: std::array::from_fn(word),
        hash: word(CONV) * HALF + word(CONV + 1),
    }
}

fn set(room: &mut RoomMut<'_>, Running { conv, hash }: Running) {
    for (to, from) in room
        .buffer
        .iter_mut()
        .zip([conv[0], conv[1], hash / HALF, hash % HALF])
    {
        *to = from as f32;
    }
}

fn numbers<'a>(view: &'a TensorView<'_>) -> Cow<'a, [u32]> {
    view.to_row_major::<u32>().expect("ids and states are uint32")
}

/// Writes a row's new keys, and gives what the last of them sees.
fn take_in(layer: HashingLayer, room: &mut RoomMut<'_>, tokens: &[u32]) -> u32 {
    let keys = tokens.iter().map(|token| token.wrapping_add(1));
    let new = (room.start..).zip(keys);
    let first = match layer {
        HashingLayer::Recurrent => {
            let after = new.fold(running(room), |running, (position, key)| {
                running.then(key, number(position))
            });
            set(room, after);
            return after.sum();
        }
        HashingLayer::Full => 0,
        HashingLayer::Sliding(window) => (room.start + tokens.len()).saturating_sub(window),
    };
    for (position, key) in new {
        put(room, position, key);
    }
    (first..room.start + tokens.len()).fold(0u32, |sum, position| {
        let (key, value) = get(room, position);
        sum.wrapping_add(term(key, value))
    })
}

impl OwnKernels {
    pub(super) fn new(layer: HashingLayer) -> Self {
        let see = InPlaceNode::new("Hashing", move |inputs, rooms, outputs| {
            let (tokens, states) = (numbers(&inputs[0]), numbers(&inputs[1]));
            let next = outputs[0].as_mut_slice::<u32>().expect("uint32");
            let mut rest = &tokens[..];
            for (row, room) in rooms.iter_mut().enumerate() {
                let (new, others) = rest.split_at(room.tokens);
                next[row] = layered(states[row], take_in(layer, room, new));
                rest = others;
            }
        });
        Self { see }
    }
}
