"""Operations on a branch: generate, parse, communicate, operate and react."""
