//! Characters that stand for what formulas name.

/// Signs by their names.
const SYMBOLS: &[(&str, &str)] = &[
    ("alpha", "α"),
    ("beta", "β"),
    ("gamma", "γ"),
    ("delta", "δ"),
    ("epsilon", "ϵ"),
    ("varepsilon", "ε"),
    ("zeta", "ζ"),
    ("eta", "η"),
    ("theta", "θ"),
    ("vartheta", "ϑ"),
    ("iota", "ι"),
    ("kappa", "κ"),
    ("lambda", "λ"),
    ("mu", "μ"),
    ("nu", "ν"),
    ("xi", "ξ"),
    ("pi", "π"),
    ("rho", "ρ"),
    ("sigma", "σ"),
    ("tau", "τ"),
    ("upsilon", "υ"),
    ("phi", "ϕ"),
    ("varphi", "φ"),
    ("chi", "χ"),
    ("psi", "ψ"),
    ("omega", "ω"),
    ("Gamma", "Γ"),
    ("Delta", "Δ"),
    ("Theta", "Θ"),
    ("Lambda", "Λ"),
    ("Xi", "Ξ"),
    ("Pi", "Π"),
    ("Sigma", "Σ"),
    ("Upsilon", "Υ"),
    ("Phi", "Φ"),
    ("Psi", "Ψ"),
    ("Omega", "Ω"),
    ("infty", "∞"),
    ("partial", "∂"),
    ("nabla", "∇"),
    ("sum", "∑"),
    ("prod", "∏"),
    ("int", "∫"),
    ("iint", "∬"),
    ("oint", "∮"),
    ("forall", "∀"),
    ("exists", "∃"),
    ("neg", "¬"),
    ("lnot", "¬"),
    ("emptyset", "∅"),
    ("varnothing", "∅"),
    ("ldots", "…"),
    ("dots", "…"),
    ("cdots", "⋯"),
    ("vdots", "⋮"),
    ("circ", "∘"),
    ("prime", "′"),
    ("angle", "∠"),
    ("triangle", "△"),
    ("square", "□"),
    ("blacksquare", "■"),
    ("langle", "⟨"),
    ("rangle", "⟩"),
    ("lfloor", "⌊"),
    ("rfloor", "⌋"),
    ("lceil", "⌈"),
    ("rceil", "⌉"),
    ("vert", "|"),
    ("lvert", "|"),
    ("rvert", "|"),
    ("Vert", "‖"),
    ("lVert", "‖"),
    ("rVert", "‖"),
    ("|", "‖"),
    ("hbar", "ℏ"),
    ("ell", "ℓ"),
    ("Re", "ℜ"),
    ("Im", "ℑ"),
    ("aleph", "ℵ"),
    ("ast", "*"),
    ("star", "⋆"),
    ("bullet", "•"),
    ("dagger", "†"),
    ("backslash", "\\"),
    ("colon", ":"),
    ("%", "%"),
    ("$", "$"),
    ("#", "#"),
    ("&", "&"),
    ("_", "_"),
    ("{", "{"),
    ("}", "}"),
    (",", " "),
    (";", " "),
    (":", " "),
    (" ", " "),
    ("quad", "  "),
    ("qquad", "    "),
    ("sin", "sin"),
    ("cos", "cos"),
    ("tan", "tan"),
    ("cot", "cot"),
    ("sec", "sec"),
    ("csc", "csc"),
    ("arcsin", "arcsin"),
    ("arccos", "arccos"),
    ("arctan", "arctan"),
    ("sinh", "sinh"),
    ("cosh", "cosh"),
    ("tanh", "tanh"),
    ("log", "log"),
    ("ln", "ln"),
    ("lg", "lg"),
    ("exp", "exp"),
    ("lim", "lim"),
    ("limsup", "lim sup"),
    ("liminf", "lim inf"),
    ("max", "max"),
    ("min", "min"),
    ("sup", "sup"),
    ("inf", "inf"),
    ("det", "det"),
    ("dim", "dim"),
    ("ker", "ker"),
    ("gcd", "gcd"),
    ("arg", "arg"),
    ("deg", "deg"),
    ("Pr", "Pr"),
];

/// Signs that stand between two things, with a space on each side.
const SPACED: &[(&str, &str)] = &[
    ("times", "×"),
    ("cdot", "·"),
    ("div", "÷"),
    ("pm", "±"),
    ("mp", "∓"),
    ("leq", "≤"),
    ("le", "≤"),
    ("geq", "≥"),
    ("ge", "≥"),
    ("neq", "≠"),
    ("ne", "≠"),
    ("lt", "<"),
    ("gt", ">"),
    ("ll", "≪"),
    ("gg", "≫"),
    ("approx", "≈"),
    ("equiv", "≡"),
    ("cong", "≅"),
    ("sim", "∼"),
    ("simeq", "≃"),
    ("propto", "∝"),
    ("to", "→"),
    ("rightarrow", "→"),
    ("longrightarrow", "→"),
    ("gets", "←"),
    ("leftarrow", "←"),
    ("leftrightarrow", "↔"),
    ("Rightarrow", "⇒"),
    ("implies", "⇒"),
    ("Leftarrow", "⇐"),
    ("Leftrightarrow", "⇔"),
    ("iff", "⇔"),
    ("mapsto", "↦"),
    ("in", "∈"),
    ("notin", "∉"),
    ("ni", "∋"),
    ("subset", "⊂"),
    ("subseteq", "⊆"),
    ("supset", "⊃"),
    ("supseteq", "⊇"),
    ("cup", "∪"),
    ("cap", "∩"),
    ("setminus", "∖"),
    ("land", "∧"),
    ("wedge", "∧"),
    ("lor", "∨"),
    ("vee", "∨"),
    ("oplus", "⊕"),
    ("otimes", "⊗"),
    ("perp", "⊥"),
    ("parallel", "∥"),
    ("mid", "|"),
    ("therefore", "∴"),
    ("because", "∵"),
    ("bmod", "mod"),
];

/// Characters that stand higher, each behind the one that it stands for.
const ABOVE: &str = "0⁰1¹2²3³4⁴5⁵6⁶7⁷8⁸9⁹+⁺-⁻=⁼(⁽)⁾aᵃbᵇcᶜdᵈeᵉfᶠgᵍhʰiⁱjʲkᵏlˡmᵐnⁿoᵒpᵖrʳsˢtᵗuᵘvᵛwʷxˣyʸzᶻTᵀ";
/// Characters that stand lower, in the same way.
const BELOW: &str = "0₀1₁2₂3₃4₄5₅6₆7₇8₈9₉+₊-₋=₌(₍)₎aₐeₑhₕiᵢjⱼkₖlₗmₘnₙoₒpₚrᵣsₛtₜuᵤvᵥxₓ";

/// What a command is shown as that takes nothing.
pub(super) fn symbol(name: &str) -> Option<&'static str> {
    let all = SYMBOLS.iter().chain(SPACED);
    all.into_iter()
        .find_map(|(known, shown)| (*known == name).then_some(*shown))
}

/// Whether it stands between two things.
pub(super) fn is_spaced(name: &str) -> bool {
    SPACED.iter().any(|(known, _)| *known == name)
}

fn of_pairs(pairs: &str, c: char) -> Option<char> {
    let mut characters = pairs.chars();
    while let (Some(plain), Some(small)) = (characters.next(), characters.next()) {
        if plain == c {
            return Some(small);
        }
    }
    None
}

/// A character as it stands higher.
pub(super) fn superscript(c: char) -> Option<char> {
    of_pairs(ABOVE, c)
}

/// A character as it stands lower.
pub(super) fn subscript(c: char) -> Option<char> {
    of_pairs(BELOW, c)
}

/// Whether a character stands higher or lower.
pub(super) fn is_script(c: char) -> bool {
    let small = |pairs: &str| pairs.chars().skip(1).step_by(2).any(|small| small == c);
    !c.is_ascii() && (small(ABOVE) || small(BELOW))
}

/// A letter of a set of numbers.
pub(super) fn double_struck(c: char) -> char {
    match c {
        'C' => 'ℂ',
        'H' => 'ℍ',
        'N' => 'ℕ',
        'P' => 'ℙ',
        'Q' => 'ℚ',
        'R' => 'ℝ',
        'Z' => 'ℤ',
        c => c,
    }
}

/// The mark that goes over a letter.
pub(super) fn accent(name: &str) -> Option<char> {
    Some(match name {
        "hat" | "widehat" => '\u{302}',
        "bar" => '\u{304}',
        "overline" => '\u{305}',
        "vec" => '\u{20d7}',
        "tilde" => '\u{303}',
        "dot" => '\u{307}',
        "ddot" => '\u{308}',
        _ => return None,
    })
}
