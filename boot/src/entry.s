# From the PVH entry in 32-bit mode to Rust in the high half; see pvh.rs.

    .section .note.Xen, "a", @note
    .balign 4
    .long 4                         # bytes of the name
    .long 8                         # bytes of the address
    .long 18                        # XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad boot_pvh_start - {base}

# ---------------------------------------------------------------- 32-bit mode
    .section .text.boot, "ax", @progbits
    .code32
    .globl boot_pvh_start
boot_pvh_start:
    cli
    cld

    # The loader's structure: magic number, version with a memory map, a map.
    movl $(boot_message_not_pvh - {base}), %esi
    cmpl $0x336ec578, (%ebx)
    jne boot_fail32
    movl $(boot_message_no_map - {base}), %esi
    cmpl $1, 4(%ebx)
    jb boot_fail32
    movl 48(%ebx), %ecx
    testl %ecx, %ecx
    jz boot_fail32
    cmpl $0, 44(%ebx)
    jne boot_fail32
    movl 40(%ebx), %edi
    testl %edi, %edi
    jz boot_fail32

    # One RAM entry must hold the whole image, for its data may lie beyond
    # the end of RAM, where writes vanish.
1:  cmpl $1, 16(%edi)               # kind: RAM
    jne 2f
    cmpl $0, 4(%edi)                # starts above 4 GiB
    jne 2f
    movl (%edi), %eax
    cmpl $(boot_pvh_image_start - {base}), %eax
    ja 2f
    xorl %edx, %edx
    addl 8(%edi), %eax
    adcl 12(%edi), %edx
    jnz 3f                          # ends above 4 GiB
    cmpl $(__image_end - {base}), %eax
    jae 3f
2:  addl $24, %edi
    decl %ecx
    jnz 1b
    movl $(boot_message_no_memory - {base}), %esi
    jmp boot_fail32
3:

    # From here on there is memory to write to.
    movl $(boot_stack_top - {base}), %esp
    movl %ebx, %ebp

    # A CPU without CPUID cannot change this flag.
    pushfl
    popl %eax
    movl %eax, %ecx
    xorl $0x200000, %eax
    pushl %eax
    popfl
    pushfl
    popl %eax
    movl $(boot_message_no_long_mode - {base}), %esi
    cmpl %eax, %ecx
    je boot_fail32
    movl $0x80000000, %eax
    cpuid
    cmpl $0x80000001, %eax
    jb boot_fail32
    movl $0x80000001, %eax
    cpuid
    btl $29, %edx
    jnc boot_fail32
    movl $(boot_message_no_nx - {base}), %esi
    btl $20, %edx
    jnc boot_fail32

    # Four directories of 2 MiB pages: the low 4 GiB.
    movl $(boot_directories - {base}), %edi
    movl $0x83, %eax                # present, writable, large
    movl $2048, %ecx
4:  movl %eax, (%edi)
    movl $0, 4(%edi)
    addl $0x200000, %eax
    addl $8, %edi
    decl %ecx
    jnz 4b
    # One table of the four for the identity and the direct map, one of the
    # first two for the top 2 GiB.
    movl $(boot_directories - {base} + 0x3), %eax
    movl $(boot_pdpt_low - {base}), %edi
    movl $4, %ecx
5:  movl %eax, (%edi)
    addl $4096, %eax
    addl $8, %edi
    decl %ecx
    jnz 5b
    movl $(boot_directories - {base} + 0x3), %eax
    movl %eax, boot_pdpt_high - {base} + 510 * 8
    addl $4096, %eax
    movl %eax, boot_pdpt_high - {base} + 511 * 8
    movl $(boot_pdpt_low - {base} + 0x3), %eax
    movl %eax, boot_pml4 - {base}
    movl %eax, boot_pml4 - {base} + {direct_slot} * 8
    movl $(boot_pdpt_high - {base} + 0x3), %eax
    movl %eax, boot_pml4 - {base} + 511 * 8

    movl $0x20, %eax                # PAE
    movl %eax, %cr4
    movl $(boot_pml4 - {base}), %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx          # EFER: long mode and no-execute
    rdmsr
    orl $0x900, %eax
    wrmsr
    movl $0x80010033, %eax          # paging, write-protect, native FPU errors, protection
    movl %eax, %cr0
    lgdtl boot_gdt_pointer_low - {base}
    ljmpl $0x08, $(boot_start64_low - {base})

# Prints the text at %esi and ends with the failure code. Needs no stack.
boot_fail32:
    lodsb
    testb %al, %al
    jz 8f
    movb %al, %ah
    movl $1000000, %ecx
6:  movw $0x3fd, %dx
    inb %dx, %al
    testb $0x20, %al
    jnz 7f
    pause
    decl %ecx
    jnz 6b
7:  movb %ah, %al
    movw $0x3f8, %dx
    outb %al, %dx
    jmp boot_fail32
8:  movw ${fail_port}, %dx
    movl ${fail_code}, %eax
    outl %eax, %dx
    # Still here: no such device. In a virtual machine, QEMU's power-off port.
    movl $1, %eax
    cpuid
    testl %ecx, %ecx                # bit 31: runs under a hypervisor
    jns 9f
    movw ${vm_power_off_port}, %dx
    movw ${vm_power_off_value}, %ax
    outw %ax, %dx
9:  cli
    hlt
    jmp 9b

# ---------------------------------------------------------------- 64-bit mode
    .code64
boot_start64_low:
    movabsq $boot_start64, %rax
    jmpq *%rax
boot_start64:
    lgdtq boot_gdt_pointer(%rip)
    movl $0x10, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    leaq boot_stack_top(%rip), %rsp
    movl %ebp, %edi                 # start info, physical
    xorl %ebp, %ebp                 # the end of every backtrace
    callq {start}
    ud2

# ------------------------------------------------------------------ constants
    .section .rodata.boot, "a", @progbits
    .balign 16
    .globl boot_gdt
boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff        # 0x08: 64-bit code, accessed
    .quad 0x00cf93000000ffff        # 0x10: data, accessed
boot_gdt_end:
    .balign 8
    .word 0, 0, 0
    .globl boot_gdt_pointer
boot_gdt_pointer:
    .word boot_gdt_end - boot_gdt - 1
    .quad boot_gdt
    .balign 8
    .word 0
boot_gdt_pointer_low:
    .word boot_gdt_end - boot_gdt - 1
    .long boot_gdt - {base}

boot_message_not_pvh:
    .asciz "boot: no hvm_start_info: not a PVH loader, or a command line too long for it (at most 2047 bytes are accepted); the machine ends\n"
boot_message_no_map:
    .asciz "boot: the loader gave no memory map (hvm_start_info version 1 or later is needed); the machine ends\n"
boot_message_no_memory:
    .asciz "boot: too little memory: RAM does not hold the kernel's image; give the machine more (--mem, -m); the machine ends\n"
boot_message_no_long_mode:
    .asciz "boot: this CPU has no 64-bit mode; an x86-64 CPU is needed; the machine ends\n"
boot_message_no_nx:
    .asciz "boot: this CPU has no no-execute pages (NX); a CPU that has them is needed; the machine ends\n"

# ----------------------------------------------------------------------- data
    .section .bss.boot, "aw", @nobits
    .balign 4096
boot_pml4:          .skip 4096
boot_pdpt_low:      .skip 4096
boot_pdpt_high:     .skip 4096
boot_directories:   .skip 4 * 4096
boot_stack:         .skip {stack_bytes}
boot_stack_top:
    .text
