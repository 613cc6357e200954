#pragma once

// SchemaExclusion: whether two branches of a oneOf can be told apart. Proven by what JSON Schema
// says of all values, never by trial. That no value fits both schemas follows from one of these:
//
//   their types have none in common (an integer is a number);
//   each lists its values (enum, const), and they share none;
//   both are objects, and a property that one requires has schemas in both of which the same is
//   proven, or the other allows no such property.
//
// Thread rule: one thread.

#include <cstddef>

#include "text/json_text.h"

namespace fathom {

class SchemaExclusion {
 public:
  // References lead into `root`, which outlives this. `closed`: as SchemaReader's.
  SchemaExclusion(const Json& root, bool closed) : root_(root), closed_(closed) {}

  // Both, and what they refer to, were checked as schemas. False where it is not proven, so also
  // past the bounds of depth and, over the life of this, of steps.
  bool proven(const Json& a, const Json& b);

 private:
  bool proven_here(const Json& a, const Json& b);
  bool told_apart(const Json& a, const Json& b);

  const Json& root_;
  bool closed_;
  size_t n_steps_ = 0;
  int depth_ = 0;
};

}  // namespace fathom
