//! Packing: rows of a matrix as a file has them become panels (see [`Weights`]), so many rows at a time.

#[cfg(test)]
mod tests;

use std::ops::Range;

use half::{bf16, f16};

use crate::arena::Region;
use crate::shared::SharedMut;
use crate::weights::{BLOCK, PANEL, Records, place, planes};
use crate::{Affine, Arena, Float, PackError, Quants, Storage, Team, Weights};

/// Elements that are taken at a time: few enough that rows and what they were made of are small beside a matrix.
const SLICE: usize = 4 << 20;

/// A matrix `[outputs, inputs]` that is packed slice by slice, so that it is never in memory twice.
///
/// It is packed as if all its rows had been there at once: in the narrowest type that holds them all, nothing rounded. Where
/// later rows ask for another than those before, [`next_rows`](Self::next_rows) begins again from the first.
pub struct Packing<'a> {
    team: &'a Team,
    arena: &'a Arena,
    outputs: usize,
    inputs: usize,
    /// Rows of a slice, whole panels.
    slice: usize,
    /// What all rows so far ask for.
    demand: Option<Demand>,
    /// Panels of rows packed so far.
    panels: Option<Panels>,
    packed: usize,
    /// The rows that were asked for last.
    pending: Range<usize>,
}

/// Panels, not all of them filled.
struct Panels {
    storage: Storage,
    panel_bytes: usize,
    memory: Region,
}

/// What storage has to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Demand {
    Dense(Exact),
    Affine(Quantized),
}

/// What quantized rows ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Quantized {
    bits: usize,
    group: usize,
    /// Each bias follows from its scale.
    centered: bool,
    scales: Exact,
    biases: Exact,
}

/// Which types hold values exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Exact {
    f16: bool,
    bf16: bool,
}

impl Exact {
    fn of(values: &[f32]) -> Self {
        let exact = |narrowed: fn(f32) -> f32| values.iter().all(|&v| narrowed(v).to_bits() == v.to_bits());
        Self {
            f16: exact(|v| f16::from_f32(v).to_f32()),
            bf16: exact(|v| bf16::from_f32(v).to_f32()),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            f16: self.f16 && other.f16,
            bf16: self.bf16 && other.bf16,
        }
    }

    fn narrowest(self) -> Float {
        match self {
            Self { f16: true, .. } => Float::F16,
            Self { bf16: true, .. } => Float::Bf16,
            _ => Float::F32,
        }
    }
}

impl Demand {
    /// What holds both. Rows of different kinds are dense; what they then are is not known before they are read again.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Dense(a), Self::Dense(b)) => Self::Dense(a.and(b)),
            (Self::Affine(a), Self::Affine(b)) if (a.bits, a.group) == (b.bits, b.group) => {
                Self::Affine(Quantized {
                    centered: a.centered && b.centered,
                    scales: a.scales.and(b.scales),
                    biases: a.biases.and(b.biases),
                    ..a
                })
            }
            (Self::Dense(exact), _) | (_, Self::Dense(exact)) => Self::Dense(exact),
            (Self::Affine(_), Self::Affine(_)) => Self::Dense(Exact {
                f16: true,
                bf16: true,
            }),
        }
    }

    fn storage(self) -> Storage {
        match self {
            Self::Dense(exact) => Storage::Dense(exact.narrowest()),
            Self::Affine(Quantized {
                bits,
                group,
                centered,
                scales,
                biases,
            }) => Storage::Affine(Quants {
                bits,
                group,
                scale: if centered { scales } else { scales.and(biases) }.narrowest(),
                centered,
            }),
        }
    }
}

impl<'a> Packing<'a> {
    /// A matrix that comes in slices of some millions of elements.
    pub fn new(team: &'a Team, arena: &'a Arena, outputs: usize, inputs: usize) -> Self {
        let rows = SLICE / inputs.max(1) / PANEL * PANEL;
        Self::sliced(team, arena, [outputs, inputs], rows)
    }

    /// A matrix that comes in slices of so many rows, or what is left of whole panels of them.
    pub fn sliced(team: &'a Team, arena: &'a Arena, [outputs, inputs]: [usize; 2], rows: usize) -> Self {
        Self {
            team,
            arena,
            outputs,
            inputs,
            slice: rows.max(1).next_multiple_of(PANEL),
            demand: None,
            panels: None,
            packed: 0,
            pending: 0..0,
        }
    }

    /// The rows to be given next, by [`dense`](Self::dense) or [`affine`](Self::affine); none when all are packed.
    pub fn next_rows(&mut self) -> Option<Range<usize>> {
        let end = self.packed.saturating_add(self.slice).min(self.outputs);
        self.pending = self.packed..end;
        (!self.pending.is_empty()).then(|| self.pending.clone())
    }

    /// Whether rows are to be given by [`dense`](Self::dense): they can't all be quantized alike.
    pub fn is_dense(&self) -> bool {
        matches!(self.demand, Some(Demand::Dense(_)))
    }

    /// Takes the next rows: their elements, `[rows, inputs]`.
    ///
    /// # Errors
    /// If there are not as many as that, or no memory.
    pub fn dense(&mut self, elements: &[f32]) -> Result<(), PackError> {
        let (inputs, first) = (self.inputs, self.pending.start);
        check("elements", elements.len(), self.pending.len() * inputs)?;
        let Some(Storage::Dense(float)) = self.settle(Demand::Dense(Exact::of(elements)))? else {
            return Ok(());
        };
        self.fill(|panel, rows| {
            for (lane, row) in rows.enumerate() {
                for (k, &element) in elements[(row - first) * inputs..][..inputs].iter().enumerate() {
                    float.write(panel, k * PANEL + lane, element);
                }
            }
        });
        Ok(())
    }

    /// Takes the next rows, quantized.
    ///
    /// # Errors
    /// If they are to be [dense](Self::is_dense), they are not as many, or not as wide, there is no kernel for their bits or group, a part has not the length that
    /// their shape asks for, or there is no memory.
    pub fn affine(&mut self, matrix: Affine<'_>) -> Result<(), PackError> {
        let Affine {
            outputs,
            inputs,
            bits,
            group,
            ..
        } = matrix;
        if self.is_dense() {
            return Err(PackError::Mixed);
        }
        if ![2, 3, 4, 5, 6, 8].contains(&bits) {
            return Err(PackError::Bits { bits });
        }
        if ![16, 32, 64, 128].contains(&group) || !inputs.is_multiple_of(group) {
            return Err(PackError::Group { group, inputs });
        }
        let (words, groups) = (inputs * bits / 32, inputs / group);
        check("rows", outputs, self.pending.len())?;
        check("columns", inputs, self.inputs)?;
        // A row whose bits don't fill its last word can't be told from the next one.
        check("packed", matrix.packed.len() * 32, outputs * inputs * bits)?;
        check("scales", matrix.scales.len(), outputs * groups)?;
        check("biases", matrix.biases.len(), outputs * groups)?;
        if inputs * bits % 32 != 0 {
            return Err(PackError::Group { group, inputs });
        }
        let half_range = (1 << (bits - 1)) as f32;
        let mut pairs = matrix.scales.iter().zip(matrix.biases);
        let demand = Demand::Affine(Quantized {
            bits,
            group,
            centered: pairs.all(|(scale, bias)| *bias == -half_range * scale),
            scales: Exact::of(matrix.scales),
            biases: Exact::of(matrix.biases),
        });
        let first = self.pending.start;
        let Some(Storage::Affine(quants)) = self.settle(demand)? else {
            return Ok(());
        };
        let records = quants.records();
        self.fill(|panel, rows| {
            let mut codes = vec![0u8; inputs];
            for (lane, row) in rows.map(|row| row - first).enumerate() {
                let stored = &matrix.packed[row * words..][..words];
                put_quants(panel, records, stored, bits, lane, &mut codes);
                for index in 0..groups {
                    let from = row * groups + index;
                    let at = records.scales_of(index * group, group);
                    quants.scale.write(&mut panel[at..], lane, matrix.scales[from]);
                    if !quants.centered {
                        let at = at + records.biases;
                        quants.scale.write(&mut panel[at..], lane, matrix.biases[from]);
                    }
                }
            }
        });
        Ok(())
    }

    /// What the next rows are to be stored as; none where all begins again.
    fn settle(&mut self, next: Demand) -> Result<Option<Storage>, PackError> {
        let before = self.demand;
        let demand = before.map_or(next, |before| before.and(next));
        self.demand = Some(demand);
        let storage = demand.storage();
        let kept = self
            .panels
            .as_ref()
            .is_none_or(|panels| panels.storage == storage);
        let same_kind = matches!(demand, Demand::Dense(_)) == matches!(next, Demand::Dense(_));
        if !kept || !same_kind {
            self.packed = 0;
            if let Some(panels) = self.panels.take() {
                self.arena.take_back(panels.memory);
            }
            return Ok(None);
        }
        if self.panels.is_none() {
            self.panels = Some(self.panels_for(storage)?);
        }
        Ok(Some(storage))
    }

    /// Memory for all panels.
    fn panels_for(&self, storage: Storage) -> Result<Panels, PackError> {
        let bytes = match storage {
            Storage::Dense(float) => self.inputs * PANEL * float.bytes(),
            Storage::Affine(quants) => {
                let records = quants.records();
                self.inputs.div_ceil(records.inputs()) * records.bytes
            }
        };
        let panel_bytes = bytes.next_multiple_of(64);
        let bytes = panel_bytes * self.outputs.div_ceil(PANEL);
        let memory = self.arena.take(bytes).map_err(|error| PackError::Memory {
            bytes,
            reason: error.to_string(),
        })?;
        Ok(Panels {
            storage,
            panel_bytes,
            memory,
        })
    }

    /// Fills the panels of the pending rows, each by one member of the team.
    fn fill(&mut self, fill: impl Fn(&mut [u8], Range<usize>) + Sync) {
        let Some(panels) = &mut self.panels else {
            return;
        };
        let (size, rows) = (panels.panel_bytes, self.pending.clone());
        let (first, end) = (rows.start / PANEL, rows.end.div_ceil(PANEL));
        let shared = SharedMut::new(panels.memory.bytes_mut());
        self.team.run(|worker| {
            loop {
                let panel = first + worker.claim(0);
                if panel >= end {
                    break;
                }
                // SAFETY: each panel is claimed once.
                let bytes = unsafe { shared.slice(panel * size..(panel + 1) * size) };
                fill(bytes, panel * PANEL..((panel + 1) * PANEL).min(rows.end));
            }
        });
        self.packed = rows.end;
    }

    /// The packed matrix.
    ///
    /// # Errors
    /// If not all rows were given, or there is no memory.
    pub fn finish(mut self) -> Result<Weights, PackError> {
        check("rows", self.packed, self.outputs)?;
        let panels = match self.panels.take() {
            Some(panels) => panels,
            // No rows at all.
            None => self.panels_for(Storage::Dense(Float::F32))?,
        };
        Ok(Weights {
            outputs: self.outputs,
            inputs: self.inputs,
            storage: panels.storage,
            panel_bytes: panels.panel_bytes,
            memory: panels.memory,
        })
    }
}

impl std::fmt::Debug for Packing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packing")
            .field("outputs", &self.outputs)
            .field("inputs", &self.inputs)
            .field("packed", &self.packed)
            .finish_non_exhaustive()
    }
}

impl Weights {
    /// Packs dense elements, `[outputs, inputs]`, in the narrowest type that holds them exactly.
    ///
    /// # Errors
    /// If there are not `outputs · inputs` elements, or no memory.
    pub fn dense(
        team: &Team,
        arena: &Arena,
        outputs: usize,
        inputs: usize,
        elements: &[f32],
    ) -> Result<Self, PackError> {
        check("elements", elements.len(), outputs * inputs)?;
        let mut packing = Packing::sliced(team, arena, [outputs, inputs], outputs);
        if packing.next_rows().is_some() {
            packing.dense(elements)?;
        }
        packing.finish()
    }

    /// Packs a quantized matrix. Nothing is rounded.
    ///
    /// # Errors
    /// If there is no kernel for its bits or group, a part has not the length that the shape asks for, or there is no
    /// memory.
    pub fn affine(team: &Team, arena: &Arena, matrix: Affine<'_>) -> Result<Self, PackError> {
        let mut packing = Packing::sliced(team, arena, [matrix.outputs, matrix.inputs], matrix.outputs);
        packing.next_rows();
        packing.affine(matrix)?;
        packing.finish()
    }
}

fn check(part: &'static str, found: usize, expected: usize) -> Result<(), PackError> {
    if found == expected {
        Ok(())
    } else {
        Err(PackError::Length {
            part,
            found,
            expected,
        })
    }
}

/// Puts a row's quants, a stream of bits, into the planes of a panel's lane.
fn put_quants(
    panel: &mut [u8],
    records: Records,
    stored: &[u32],
    bits: usize,
    lane: usize,
    codes: &mut [u8],
) {
    if bits == 4 {
        // A word of the stream is a word of the plane.
        for (block, stored) in stored.chunks(bits).enumerate() {
            let plane = &mut panel[records.block_of(block * BLOCK)..][..records.block];
            let places = plane.chunks_exact_mut(PANEL * 4);
            for (place, word) in places.zip(stored) {
                place[lane * 4..][..4].copy_from_slice(&word.to_le_bytes());
            }
        }
        return;
    }
    unpack_bits(stored, bits, codes);
    for (block, codes) in codes.chunks(BLOCK).enumerate() {
        let at = records.block_of(block * BLOCK);
        pack_block(&mut panel[at..][..records.block], codes, bits, lane);
    }
}

/// Reads a stream of `bits`-wide integers, the lowest bits of each word first.
fn unpack_bits(words: &[u32], bits: usize, codes: &mut [u8]) {
    let mask = (1u64 << bits) - 1;
    let (mut words, mut held, mut available) = (words.iter(), 0u64, 0);
    for code in codes {
        if available < bits {
            held |= u64::from(words.next().copied().unwrap_or(0)) << available;
            available += 32;
        }
        *code = (held & mask) as u8;
        held >>= bits;
        available -= bits;
    }
}

/// Puts up to [`BLOCK`] quants of one lane into the planes of a block.
fn pack_block(block: &mut [u8], codes: &[u8], bits: usize, lane: usize) {
    let mut below = 0;
    let mut rest = block;
    for &width in planes(bits) {
        let (plane, others) = rest.split_at_mut(width * BLOCK * PANEL / 8);
        rest = others;
        let mut words = [0u32; 8];
        for (k, &code) in codes.iter().enumerate() {
            let (word, shift) = place(width, k);
            words[word] |= (u32::from(code) >> below & ((1 << width) - 1)) << shift;
        }
        for (word, bits) in words[..width].iter().enumerate() {
            plane[(word * PANEL + lane) * 4..][..4].copy_from_slice(&bits.to_le_bytes());
        }
        below += width;
    }
}
