// Included before every source of mlx-c and of the bridge.
//
// mlx-c formats five messages with std::format, without including <format>. Where the C++ library has none (GCC
// before 13), a small stand-in does: it knows the placeholder {} and nothing else, which is all that mlx-c writes.
#pragma once

// Half-precision accessors are ours (halves.cpp), with the same types everywhere: mlx-c's own header, which defines
// them on some platforms only, counts as read.
#define MLX_HALF_H

#ifdef __cplusplus
#ifdef MLX_SYS_HAS_STD_FORMAT
#include <format>
#else
#include <sstream>
#include <string>
#include <string_view>

namespace std {

template <typename... Args>
string format(string_view text, const Args&... args) {
  ostringstream out;
  auto put = [&](const auto& value) {
    auto hole = text.find("{}");
    out << text.substr(0, hole);
    if (hole == string_view::npos) {
      text = {};
      return;
    }
    out << value;
    text.remove_prefix(hole + 2);
  };
  (put(args), ...);
  out << text;
  return out.str();
}

} // namespace std
#endif
#endif
