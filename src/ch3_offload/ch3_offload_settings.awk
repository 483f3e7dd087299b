# Reads ch3_offload_settings.def, and prints the table of docs/settings.md or, with -v form=cvars, the control variables
# as MPICH's extractcvars reads them.
BEGIN {
  RS = ""
  if (form == "cvars") {
    print "=== BEGIN_MPI_T_CVAR_INFO_BLOCK ==="
    print "categories :"
    print "   - name : CH3_OFFLOAD"
    print "     description : the ch3:offload channel (matching engine, shared memory and network transports)"
    print "cvars:"
  } else {
    print "| variable | default | takes | scope |"
    print "|---|---|---|---|"
  }
}
sub(/.*CH3_OFFLOAD_SETTING\([ \n]*/, "") {
  gsub(/"[ \n]+"/, "")  # A text goes on in the next line.
  split($0, part, "\"")  # The texts have even numbers.
  split(part[1], word, /[, \n]+/)
  if (form != "cvars")
    printf "| `%s` | %s | %s | %s |\n", word[1], part[2], part[4], word[6]
  else if (part[6] != "")
    printf "    - name        : %s\n      category    : CH3_OFFLOAD\n      type        : string\n" \
      "      default     : \"%s\"\n      class       : none\n      verbosity   : MPI_T_VERBOSITY_USER_%s\n" \
      "      scope       : MPI_T_SCOPE_%s\n      description : >-\n        %s The variable takes %s.\n\n",
      word[1], part[2], word[5], word[6], part[6], part[4]
}
END { if (form == "cvars") print "=== END_MPI_T_CVAR_INFO_BLOCK ===" }
